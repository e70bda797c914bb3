package safe

import (
	"bytes"
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Linker links several pieces of device code to one image. Each may use the functions and
// variables of the others. Any number of goroutines may use it at once; their calls run one
// after another.
type Linker struct {
	core    *linkerCore
	cleanup lifetime.Cleanup
}

type linkerCore struct {
	lifetime.Handle
	ctx      *contextCore
	raw      driver.CUlinkState
	compiler *compiler // the driver writes to its logs until cuLinkDestroy
	thread   thread    // of all calls: the driver crashes if those for one handle come from several
	over     bool      // completed, or failed: for the thread alone

	log atomic.Pointer[string] // what the compiler has said so far, nil for nothing
}

// NewLinker creates a linker for o.Target, or for the context's device if that is 0.
// Source: cuLinkCreate.
func NewLinker(x *Context, o LoadOptions) (*Linker, error) {
	const op = "NewLinker"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if rt.InCallback() {
		return nil, &Error{Op: op, Err: ErrInCallback}
	}
	l := &linkerCore{ctx: c}
	if l.compiler, err = o.compiler(op); err != nil {
		return nil, err
	}
	l.thread = newThread()
	err = l.thread.do(func() error {
		return c.withCurrent(func() error {
			return driver.CuLinkCreate(uint32(len(l.compiler.options)), &l.compiler.options[0], &l.compiler.values[0], &l.raw)
		})
	})
	if err != nil {
		l.end()
		return nil, wrap(op, err)
	}
	if err := l.Open(l, &c.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, l.Destroy(true)))
	}
	u := &Linker{core: l}
	u.cleanup.Watch(&l.Handle)
	return u, nil
}

func (l *linkerCore) Kind() string { return "Linker" }

func (l *linkerCore) Destroy(bool) error {
	defer l.end()
	return l.thread.do(func() error {
		return l.ctx.destroying("Linker.Close", func() error { return driver.CuLinkDestroy(l.raw) })
	})
}

// end releases what the driver's handle needed.
func (l *linkerCore) end() {
	l.thread.end()
	l.compiler.unpin()
}

// do calls f on the linker's thread with the context current, unless the linker has completed or failed.
func (l *Linker) do(op string, f func(c *linkerCore) error) error {
	if l == nil || l.core == nil || !l.core.Acquire() {
		return &Error{Op: op, Err: ErrClosed}
	}
	c := l.core
	defer c.Release()
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	return c.thread.do(func() error {
		if c.over {
			return refuse(op, ErrClosed, "the linker has completed, or has failed")
		}
		err := wrap(op, c.ctx.withCurrent(func() error {
			err := f(c)
			c.over = c.over || err != nil
			return err
		}))
		log := c.compiler.log()
		c.log.Store(&log)
		return c.compiler.explain(err)
	})
}

// Log returns what the driver's compiler and linker have said so far, "" without
// [LoadOptions].Log. Source: cuLinkCreate with CU_JIT_INFO_LOG_BUFFER.
func (l *Linker) Log() string {
	if l == nil || l.core == nil {
		return ""
	}
	if log := l.core.log.Load(); log != nil {
		return *log
	}
	return ""
}

// Add adds a piece of device code: driver.CU_JIT_INPUT_PTX, which it compiles, or compiled
// code, which is driver.CU_JIT_INPUT_CUBIN, driver.CU_JIT_INPUT_FATBINARY,
// driver.CU_JIT_INPUT_OBJECT or driver.CU_JIT_INPUT_LIBRARY. Messages of the compiler refer
// to it by name. Add does not use data after it returns. It returns [ErrInvalidArgument] if
// data is empty. If the compiler fails, the error's Detail is its log, and the linker can
// only be closed. Source: cuLinkAddData.
func (l *Linker) Add(kind driver.CUjitInputType, name string, data []byte) error {
	const op = "Linker.Add"
	if kind == driver.CU_JIT_INPUT_PTX && !bytes.HasSuffix(data, []byte{0}) {
		data = append(bytes.Clone(data), 0)
	}
	if len(data) == 0 {
		return refuse(op, ErrInvalidArgument, "the data of %s is empty", name)
	}
	return l.do(op, func(c *linkerCore) error {
		return driver.CuLinkAddData(c.raw, kind, unsafe.Pointer(&data[0]), uint64(len(data)), cName(name), 0, nil, nil)
	})
}

// Complete links the added code and returns a cubin for [Load]. It can be called once:
// afterwards the linker returns [ErrClosed]. Source: cuLinkComplete.
func (l *Linker) Complete() (image []byte, err error) {
	err = l.do("Linker.Complete", func(c *linkerCore) error {
		var data unsafe.Pointer // memory of the linker
		var size uint64
		if err := driver.CuLinkComplete(c.raw, &data, &size); err != nil {
			return err
		}
		c.over = true
		image = bytes.Clone(unsafe.Slice((*byte)(data), size))
		return nil
	})
	return image, err
}

// Close destroys the linker. The image of [Linker.Complete] stays valid. Closing again does nothing. Source:
// cuLinkDestroy.
func (l *Linker) Close() error {
	if l == nil || l.core == nil {
		return nil
	}
	l.cleanup.Stop()
	return l.core.Close()
}

// String describes the linker for messages.
func (l *Linker) String() string {
	if l == nil || l.core == nil {
		return neverOpened("Linker")
	}
	return handleText("Linker", l.core.raw, l.core.ctx.device, l.core.Closed())
}
