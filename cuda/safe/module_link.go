package safe

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// Linker makes one image of several pieces of device code, which may use each
// other's functions and variables. Goroutines take turns.
type Linker struct {
	core    *linkerCore
	cleanup runtime.Cleanup
}

type linkerCore struct {
	lifetime.Handle
	ctx      *contextCore
	raw      driver.CUlinkState
	compiler *compiler // whose logs the driver keeps

	mu   sync.Mutex
	over bool // completed, or failed
}

// NewLinker makes a linker of code for the context's device, or for the target
// of the options. Source: cuLinkCreate, and cuLinkDestroy when closed.
func NewLinker(x *Context, o LoadOptions) (*Linker, error) {
	const op = "NewLinker"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	l := &linkerCore{ctx: c}
	if l.compiler, err = o.compiler(op); err != nil {
		return nil, err
	}
	err = c.withCurrent(func() error {
		return driver.CuLinkCreate(uint32(len(l.compiler.options)), &l.compiler.options[0], &l.compiler.values[0], &l.raw)
	})
	if err != nil {
		l.compiler.end()
		return nil, wrap(op, err)
	}
	if err := l.Open(l, &c.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, l.Destroy(true)))
	}
	u := &Linker{core: l}
	u.cleanup = lifetime.Cleanup(u, &l.Handle)
	return u, nil
}

func (l *linkerCore) Kind() string { return "Linker" }

func (l *linkerCore) Destroy(bool) error {
	defer l.compiler.end()
	return l.ctx.destroying("Linker.Close", func() error { return driver.CuLinkDestroy(l.raw) })
}

// do calls f with the context current, unless the linker has come to its end. A
// failure is the end, too.
func (l *Linker) do(op string, f func(c *linkerCore) error) error {
	if l == nil || l.core == nil || !l.core.Acquire() {
		return &Error{Op: op, Err: ErrClosed}
	}
	c := l.core
	defer c.Release()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return refuse(op, ErrClosed, "the linker has completed, or has failed")
	}
	err := wrap(op, c.ctx.withCurrent(func() error {
		err := f(c)
		c.over = c.over || err != nil
		return err
	}))
	c.compiler.tell()
	return c.compiler.explain(err)
}

// Add adds a piece of code, which is read during the call. name is how messages
// call it. driver.CU_JIT_INPUT_PTX is compiled; driver.CU_JIT_INPUT_CUBIN,
// driver.CU_JIT_INPUT_FATBINARY, driver.CU_JIT_INPUT_OBJECT and
// driver.CU_JIT_INPUT_LIBRARY are what compilers have made, for linking. After an error,
// whose Detail is what the compiler said, the linker can only be closed.
// Source: cuLinkAddData.
func (l *Linker) Add(kind driver.CUjitInputType, name string, data []byte) error {
	const op = "Linker.Add"
	if kind == driver.CU_JIT_INPUT_PTX && !bytes.HasSuffix(data, []byte{0}) {
		data = append(bytes.Clone(data), 0)
	}
	if len(data) == 0 {
		return refuse(op, ErrInvalidArgument, "%s is empty", name)
	}
	return l.do(op, func(c *linkerCore) error {
		return driver.CuLinkAddData(c.raw, kind, unsafe.Pointer(&data[0]), uint64(len(data)), cName(name), 0, nil, nil)
	})
}

// Complete links what was added to an image for [Load]. It can be called once.
// Source: cuLinkComplete.
func (l *Linker) Complete() (image []byte, err error) {
	err = l.do("Linker.Complete", func(c *linkerCore) error {
		var data unsafe.Pointer // the linker's own
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

// Close gives up what the linker has. The image stays. Closing again does
// nothing. Source: cuLinkDestroy.
func (l *Linker) Close() error {
	if l == nil || l.core == nil {
		return nil
	}
	l.cleanup.Stop()
	return l.core.Close()
}

// Raw is the linker for calls of package driver. It is 0 once the linker is
// closed, and to be used by one thread at a time.
func (l *Linker) Raw() driver.CUlinkState {
	if l == nil || l.core == nil || l.core.Closed() {
		return 0
	}
	return l.core.raw
}
