package safe

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// Module is compiled device code in a context: kernels and global variables.
type Module struct {
	core    *moduleCore
	cleanup runtime.Cleanup
}

type moduleCore struct {
	lifetime.Handle
	ctx     *contextCore
	library driver.CUlibrary // from 12.0 on
	module  driver.CUmodule
}

// Load loads an image: PTX, which the driver compiles, a cubin or a fatbin. If the
// compiler refuses it, the error's Detail is the compiler's log. Load copies the image.
//
// Source: cuLibraryLoadData and cuLibraryGetModule, before CUDA 12.0
// cuModuleLoadDataEx.
func Load(x *Context, image []byte, o LoadOptions) (*Module, error) {
	return load("Load", x, image, o)
}

func load(op string, x *Context, image []byte, o LoadOptions) (*Module, error) {
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	image, err = checkImage(image)
	if err != nil {
		return nil, wrap(op, err)
	}
	compiler, err := o.compiler(op)
	if err != nil {
		return nil, err
	}
	defer compiler.end()
	m := &moduleCore{ctx: c}
	err = c.withCurrent(func() error { return m.load(image, compiler) })
	compiler.tell()
	if err != nil {
		return nil, compiler.explain(wrap(op, err))
	}
	if err := m.Open(m, &c.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, m.Destroy(true)))
	}
	u := &Module{core: m}
	u.cleanup = lifetime.Cleanup(u, &m.Handle)
	return u, nil
}

// LoadFile is [Load] of a file.
func LoadFile(x *Context, file string, o LoadOptions) (*Module, error) {
	image, err := os.ReadFile(file)
	if err != nil {
		return nil, wrap("LoadFile", err)
	}
	return load("LoadFile", x, image, o)
}

// LoadFS is [Load] of a file in a file system, such as an embed.FS.
func LoadFS(x *Context, files fs.FS, name string, o LoadOptions) (*Module, error) {
	image, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, wrap("LoadFS", err)
	}
	return load("LoadFS", x, image, o)
}

func (m *moduleCore) load(image []byte, j *compiler) error {
	data := unsafe.Pointer(&image[0])
	n, again := uint32(len(j.options)), slices.Clone(j.values) // which the driver writes to
	err := driver.CuLibraryLoadData(&m.library, data, &j.options[0], &j.values[0], n, nil, nil, 0)
	if errors.Is(err, ErrNotSupported) {
		return driver.CuModuleLoadDataEx(&m.module, data, n, &j.options[0], &again[0])
	}
	if err != nil {
		return err
	}
	// The library is compiled when it is first used, which has to happen while
	// the log is there.
	if err := driver.CuLibraryGetModule(&m.module, m.library); err != nil {
		return errors.Join(err, driver.CuLibraryUnload(m.library))
	}
	return nil
}

func (m *moduleCore) Kind() string { return "Module" }

func (m *moduleCore) Destroy(wait bool) error {
	if !wait {
		return &lifetime.Elsewhere{Queue: &m.ctx.shared.frees}
	}
	return m.ctx.destroying("Module.Close", func() error {
		if m.library != 0 {
			return driver.CuLibraryUnload(m.library)
		}
		return driver.CuModuleUnload(m.module)
	})
}

// acquire marks the module for a call.
func (m *Module) acquire(op string) (*moduleCore, error) {
	if m == nil || m.core == nil || !m.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return m.core, nil
}

// Close unloads the module; its kernels and variables must not be used any
// more. It waits for kernels that run. Closing again does nothing.
// Source: cuLibraryUnload, cuModuleUnload.
func (m *Module) Close() error {
	if m == nil || m.core == nil {
		return nil
	}
	m.cleanup.Stop()
	return m.core.Close()
}

// Kernel finds a kernel by its name, as the compiler has mangled it: for C++
// without extern "C" look at the names in the PTX. One that is not there is
// driver.CUDA_ERROR_NOT_FOUND. A kernel needs no closing.
//
// Source: cuLibraryGetKernel and cuKernelGetFunction, before CUDA 12.0
// cuModuleGetFunction; cuFuncGetParamInfo.
func (m *Module) Kernel(name string) (*Kernel, error) {
	const op = "Module.Kernel"
	c, err := m.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	k := &Kernel{module: m, name: name}
	err = c.ctx.withCurrent(func() error {
		if err := c.find(&k.function, name); err != nil {
			return err
		}
		return k.askParameters()
	})
	if err != nil {
		return nil, named(wrap(op, err), name)
	}
	return k, nil
}

// named adds what was looked for to the error.
func named(err error, name string) error {
	var e *Error
	if errors.As(err, &e) && e.Detail == "" {
		e.Detail = name
	}
	return err
}

func (m *moduleCore) find(function *driver.CUfunction, name string) error {
	if m.library == 0 {
		return driver.CuModuleGetFunction(function, m.module, cName(name))
	}
	var kernel driver.CUkernel
	if err := driver.CuLibraryGetKernel(&kernel, m.library, cName(name)); err != nil {
		return err
	}
	return driver.CuKernelGetFunction(function, kernel)
}

// cName is a name as C wants it.
func cName(name string) *byte { return unsafe.StringData(name + "\x00") }

// Global is a global variable of a module, as many values of type T as it
// holds. It belongs to the module, which it keeps from being collected.
// Source: cuLibraryGetGlobal, before CUDA 12.0 cuModuleGetGlobal.
func Global[T any](m *Module, name string) (*Buffer[T], error) {
	const op = "Global"
	one, err := sizeOf[T](1)
	if err != nil {
		return nil, wrap(op, err)
	}
	c, err := m.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{ctx: c.ctx, owner: m}
	err = c.ctx.withCurrent(func() error {
		if c.library != 0 {
			return driver.CuLibraryGetGlobal(&b.address, &b.size, c.library, cName(name))
		}
		return driver.CuModuleGetGlobal(&b.address, &b.size, c.module, cName(name))
	})
	if err != nil {
		return nil, named(wrap(op, err), name)
	}
	if b.size%one != 0 {
		return nil, refuse(op, ErrRange, "%s has %d bytes, which is no number of values of %d", name, b.size, one)
	}
	if err := b.Open(b, &c.Handle); err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, int(b.size/one)), nil
}
