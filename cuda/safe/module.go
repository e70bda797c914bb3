package safe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// Module is device code loaded in a context: kernels and global variables. Any number of
// goroutines may use it at once.
type Module struct {
	core    *moduleCore
	cleanup lifetime.Cleanup
}

type moduleCore struct {
	lifetime.Handle
	ctx     *contextCore
	library driver.CUlibrary // 0 before CUDA 12.0
	module  driver.CUmodule
	names   map[string]string // LoadOptions.Names
	log     string            // of the compiler, with LoadOptions.Log

	parameters map[string]int // of the kernels, by the names in the image: see parameterCounts

	launching []*streamCore // of a closed module: the streams that may still be launching one of its kernels
}

// renamed returns the name that the image has for a name of the user.
func (m *moduleCore) renamed(name string) string {
	if symbol, ok := m.names[name]; ok {
		return symbol
	}
	return name
}

// symbol returns the C string of the name that the image has for a name of the user.
func (m *moduleCore) symbol(name string) *byte { return cName(m.renamed(name)) }

// Load loads device code into x: PTX, which the driver compiles, a cubin or a fatbin. It
// does not use image after it returns. It returns [ErrInvalidArgument] if image is none of
// these or is truncated. If the driver's compiler fails, the error's Detail is its log.
//
// Source: cuLibraryLoadData and cuLibraryGetModule; before CUDA 12.0 cuModuleLoadDataEx.
func Load(x *Context, image []byte) (*Module, error) { return load("Load", x, image, LoadOptions{}) }

// LoadWith loads device code with options for the driver's compiler: see [Load].
func LoadWith(x *Context, image []byte, o LoadOptions) (*Module, error) {
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
	defer compiler.unpin()
	m := &moduleCore{ctx: c, names: maps.Clone(o.Names)}
	if driver.Find("cuFuncGetParamCount") != nil { // before CUDA 13.2
		m.parameters = parameterCounts(image)
	}
	values := slices.Clone(compiler.values) // a call writes to them
	err = c.allocating(func() error {
		copy(compiler.values, values)
		return m.load(image, compiler)
	})
	m.log = compiler.log()
	if err != nil {
		return nil, compiler.explain(wrap(op, err))
	}
	if err := m.Open(m, &c.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, m.Destroy(true)))
	}
	u := &Module{core: m}
	u.cleanup.Watch(&m.Handle)
	return u, nil
}

// Log returns what the driver's compiler said when it compiled the module, "" without
// [LoadOptions].Log and for device code that it did not compile. Source: cuModuleLoadDataEx with
// CU_JIT_INFO_LOG_BUFFER.
func (m *Module) Log() string {
	if m == nil || m.core == nil {
		return ""
	}
	return m.core.log
}

// LoadFile loads device code from a file: see [Load]. For options, read the file and call [LoadWith].
func LoadFile(x *Context, file string) (*Module, error) {
	image, err := os.ReadFile(file)
	if err != nil {
		return nil, wrap("LoadFile", err)
	}
	return load("LoadFile", x, image, LoadOptions{})
}

func (m *moduleCore) load(image []byte, j *compiler) error {
	data := unsafe.Pointer(&image[0])
	n, again := uint32(len(j.options)), slices.Clone(j.values) // the first call writes to values
	err := driver.CuLibraryLoadData(&m.library, data, &j.options[0], &j.values[0], n, nil, nil, 0)
	if errors.Is(err, ErrNotSupported) {
		return driver.CuModuleLoadDataEx(&m.module, data, n, &j.options[0], &again[0])
	}
	if err != nil {
		return err
	}
	// The driver compiles a library at its first use. Use it now, while the log is pinned.
	if err := driver.CuLibraryGetModule(&m.module, m.library); err != nil {
		return errors.Join(err, driver.CuLibraryUnload(m.library))
	}
	return nil
}

func (m *moduleCore) Kind() string { return "Module" }

// Destroy waits for launches in flight, which have not acquired the module.
func (m *moduleCore) Destroy(wait bool) error {
	if !patiently(wait, m.launched) {
		return lifetime.ErrLater
	}
	if !wait {
		return &lifetime.Elsewhere{Queue: &m.ctx.shared.frees}
	}
	return m.unload("Module.Close")
}

// unload unloads the module, which waits for its running kernels.
func (m *moduleCore) unload(op string) error {
	if m.library != 0 { // which outlives a reset by other code, and later contexts would load it, too
		return m.ctx.releasing(op, func() error {
			return hostWaits.With(0, func() error { return driver.CuLibraryUnload(m.library) })
		})
	}
	return m.ctx.destroying(op, func() error {
		return hostWaits.With(0, func() error { return driver.CuModuleUnload(m.module) })
	})
}

// launched returns whether every launch that began before the module was closed has returned. Such
// a launch holds the lock of its stream.
func (m *moduleCore) launched() bool {
	if m.launching == nil {
		m.launching = m.ctx.shared.live()
	}
	m.launching = slices.DeleteFunc(m.launching, func(s *streamCore) bool {
		free := s.mu.TryLock()
		if free {
			s.mu.Unlock()
		}
		return free
	})
	return len(m.launching) == 0
}

// acquire acquires the module for a call.
func (m *Module) acquire(op string) (*moduleCore, error) {
	if m == nil || m.core == nil || !m.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return m.core, nil
}

// Close unloads the module, waiting for its running kernels. Its kernels then return [ErrClosed]. Calls in flight,
// buffers of [Global] that are open or that work uses, and graphs and executables with its kernels defer the unloading.
// Closing again does nothing. Close a module after other code has reset its context, too: since CUDA 12.0 the driver
// keeps its code until then, and loads it into later contexts. Source: cuLibraryUnload, cuModuleUnload.
func (m *Module) Close() error {
	if m == nil || m.core == nil {
		return nil
	}
	m.cleanup.Stop()
	return m.core.Close()
}

// Kernel returns the kernel with the given name. C++ kernels have mangled names, which the PTX shows, unless they are
// declared extern "C" or are in [LoadOptions].Names. It returns driver.CUDA_ERROR_NOT_FOUND if the module has no such
// kernel. A Kernel needs no Close. Unless CUDA_MODULE_LOADING is EAGER, the driver loads the kernel's code now: work
// that is enqueued later, on any stream of the context, then waits for all work that was enqueued before.
//
// Source: cuLibraryGetKernel and cuKernelGetFunction, before CUDA 12.0 cuModuleGetFunction; cuFuncGetParamCount,
// cuFuncGetParamInfo, cuFuncIsLoaded, cuFuncGetAttribute.
func (m *Module) Kernel(name string) (*Kernel, error) { return m.KernelWith(name, KernelOptions{}) }

// KernelOptions says what a program knows of a kernel, such as from the source that it was written for.
type KernelOptions struct {
	// Parameters are the sizes of all parameters in bytes; nil if they are not known. KernelWith
	// returns [ErrInvalidArgument] if the module's kernel has others. Drivers before CUDA 12.4 cannot
	// tell: then nothing is checked.
	Parameters []int
	// MaxThreads is the most threads that a block may have, by __launch_bounds__ or for reasons of the
	// program; 0 for as many as the driver allows. Launches with more return [ErrInvalidArgument].
	MaxThreads int
}

// KernelWith returns the kernel with the given name, as [Module.Kernel] does, and compares it with o. It returns
// [ErrInvalidArgument] if the kernel has other parameters.
func (m *Module) KernelWith(name string, o KernelOptions) (*Kernel, error) {
	const op = "Module.Kernel"
	c, err := m.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if o.MaxThreads < 0 {
		return nil, refuse(op, ErrInvalidArgument, "%s: KernelOptions.MaxThreads is %d", name, o.MaxThreads)
	}
	k := &Kernel{core: c, module: m, name: name}
	err = c.ctx.allocating(func() error { // for the kernel's code
		if err := c.find(&k.function, name); err != nil {
			return err
		}
		return k.ask()
	})
	if err != nil {
		return nil, named(wrap(op, err), c.missing(err, name))
	}
	if o.MaxThreads > 0 {
		k.threads = min(k.threads, uint64(o.MaxThreads))
	}
	if err := k.differs(op, o.Parameters); err != nil {
		return nil, err
	}
	return k, nil
}

// missing is the name of a kernel that was looked up. If the module has none of that name, the text says which it
// has and how a C++ kernel gets its name.
func (m *moduleCore) missing(err error, name string) string {
	if !errors.Is(err, driver.CUDA_ERROR_NOT_FOUND) {
		return name
	}
	const most = 8 // names in the text
	names := m.kernelNames(most + 1)
	has := ""
	switch {
	case len(names) > most:
		has = fmt.Sprintf(": the module has %s and others", strings.Join(names[:most], ", "))
	case len(names) > 0:
		has = ": the module has " + strings.Join(names, ", ")
	}
	return name + has + `; C++ mangles a kernel's name unless it is declared extern "C" or listed in compile.Options.Kernels`
}

// kernelNames returns up to n names of kernels, none if the driver does not tell.
func (m *moduleCore) kernelNames(n int) (names []string) {
	if m.library == 0 {
		return nil
	}
	_ = m.ctx.withCurrent(func() error { // the caller has an error already
		return m.eachKernel(n, func(name string, _ driver.CUkernel) error {
			names = append(names, name)
			return nil
		})
	})
	slices.Sort(names)
	return names
}

// eachKernel calls f for up to n kernels of the module. The context is current.
func (m *moduleCore) eachKernel(n int, f func(name string, k driver.CUkernel) error) error {
	var count uint32
	if err := driver.CuLibraryGetKernelCount(&count, m.library); err != nil || count == 0 {
		return err
	}
	kernels := make([]driver.CUkernel, min(int(count), n))
	if err := driver.CuLibraryEnumerateKernels(&kernels[0], uint32(len(kernels)), m.library); err != nil {
		return err
	}
	for _, k := range kernels {
		var name *byte // memory of the driver
		if err := driver.CuKernelGetName(&name, k); err != nil {
			return err
		}
		if err := f(ffi.GoString(name), k); err != nil {
			return err
		}
	}
	return nil
}

// differs returns an error for the first difference between the kernel's parameters and those that a program expects.
func (k *Kernel) differs(op string, sizes []int) error {
	if sizes == nil || !k.known {
		return nil
	}
	for i := range min(len(sizes), len(k.sizes)) {
		if sizes[i] != int(k.sizes[i]) {
			return refuse(op, ErrInvalidArgument, "parameter %d of %s has %d bytes in the module, but %d in KernelOptions.Parameters", i, k.name, k.sizes[i], sizes[i])
		}
	}
	if len(sizes) != len(k.sizes) {
		return refuse(op, ErrInvalidArgument, "%s has %d parameters in the module, but %d in KernelOptions.Parameters", k.name, len(k.sizes), len(sizes))
	}
	return nil
}

func (m *moduleCore) find(function *driver.CUfunction, name string) error {
	if m.library == 0 {
		return driver.CuModuleGetFunction(function, m.module, m.symbol(name))
	}
	var kernel driver.CUkernel
	if err := driver.CuLibraryGetKernel(&kernel, m.library, m.symbol(name)); err != nil {
		return err
	}
	return driver.CuKernelGetFunction(function, kernel)
}

// cName returns a C string.
func cName(name string) *byte { return unsafe.StringData(name + "\x00") }

// Global returns the memory of a module's global variable (__device__, __constant__ or __managed__) as
// a buffer of values of type T. The memory belongs to the module: closing the buffer does
// not free it, and the module stays loaded until the buffer is closed and the work that uses
// it has completed. Global returns driver.CUDA_ERROR_NOT_FOUND if the module has no such
// variable, and [ErrRange] if the variable's size is not a multiple of T's.
// Source: cuLibraryGetGlobal, cuLibraryGetManaged; before CUDA 12.0 cuModuleGetGlobal.
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
	err = c.ctx.withCurrent(func() error { return c.variable(&b.address, &b.size, name) })
	if err != nil {
		detail := name
		if errors.Is(err, driver.CUDA_ERROR_NOT_SUPPORTED) { // by the simulated driver
			detail += logged("variable " + c.renamed(name) + ":")
		}
		return nil, named(wrap(op, err), detail)
	}
	if b.size%one != 0 {
		return nil, refuse(op, ErrRange, "%s has %d bytes, not a multiple of the element's %d", name, b.size, one)
	}
	if err := b.Open(b, &c.Handle); err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, int(b.size/one)), nil
}

// variable finds a variable. The context is current.
func (m *moduleCore) variable(address *driver.CUdeviceptr, size *uint64, name string) error {
	if m.library == 0 {
		return driver.CuModuleGetGlobal(address, size, m.module, m.symbol(name))
	}
	err := driver.CuLibraryGetGlobal(address, size, m.library, m.symbol(name))
	if errors.Is(err, driver.CUDA_ERROR_NOT_FOUND) && driver.CuLibraryGetManaged(address, size, m.library, m.symbol(name)) == nil {
		return nil
	}
	return err
}

// String describes the module for messages.
func (m *Module) String() string {
	if m == nil || m.core == nil {
		return neverOpened("Module")
	}
	return handleText("Module", m.core.module, m.core.ctx.device, m.core.Closed())
}

// checkImage returns image as the driver takes it. The driver gets no length: PTX must end in
// a zero byte, and of a truncated cubin or fatbin it would read past the end.
func checkImage(image []byte) ([]byte, error) {
	const fatbin = 0xba55ed50
	switch {
	case len(image) == 0:
		return nil, fmt.Errorf("%w: the image is empty", ErrInvalidArgument)
	case bytes.HasPrefix(image, []byte(elf.ELFMAG)):
		return image, checkELF(image)
	case len(image) >= 16 && binary.LittleEndian.Uint32(image) == fatbin:
		header, size := uint64(binary.LittleEndian.Uint16(image[6:])), binary.LittleEndian.Uint64(image[8:])
		if size > uint64(len(image)) || header+size > uint64(len(image)) {
			return nil, fmt.Errorf("%w: the fatbin is truncated: %d bytes of %d", ErrInvalidArgument, len(image), header+size)
		}
		return image, nil
	case bytes.Contains(image, []byte(".version")):
		text, _, _ := bytes.Cut(image, []byte{0})
		return append(bytes.Clone(text), 0), nil
	}
	return nil, fmt.Errorf("%w: the image is not PTX, a cubin or a fatbin", ErrInvalidArgument)
}

func checkELF(image []byte) error {
	f, err := elf.NewFile(cubin(image))
	if err != nil {
		return fmt.Errorf("%w: the cubin is not a valid ELF file: %w", ErrInvalidArgument, err)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && (s.Offset > uint64(len(image)) || s.FileSize > uint64(len(image))-s.Offset) {
			return fmt.Errorf("%w: the cubin is truncated in section %s", ErrInvalidArgument, s.Name)
		}
	}
	return nil
}

// cubin reads an ELF file. Before CUDA 13 the header of cubins has CUDA's version in the place
// of ELF's, which package elf refuses.
type cubin []byte

func (c cubin) ReadAt(p []byte, offset int64) (int, error) {
	n, err := bytes.NewReader(c).ReadAt(p, offset)
	version := []byte{byte(elf.EV_CURRENT), 0, 0, 0}
	for i, b := range version {
		if at := 20 + int64(i) - offset; at >= 0 && at < int64(n) {
			p[at] = b
		}
	}
	return n, err
}
