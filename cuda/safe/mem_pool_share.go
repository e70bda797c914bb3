package safe

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Export returns a file by which another process of this machine can import the pool: see
// [ImportPool]. Send it in os/exec.Cmd's ExtraFiles or over a Unix socket, after which
// you may close it. It returns driver.CUDA_ERROR_INVALID_VALUE unless the pool was
// created with the handle type driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
// Source: cuMemPoolExportToShareableHandle.
func (p *Pool) Export() (*os.File, error) {
	fd, err := opened(func(fd *int32) error {
		return p.do("Pool.Export", func(c *poolCore) error { return c.export(fd) })
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "memory pool"), nil
}

// ImportPool imports a pool of another process, from the file that [Pool.Export] made
// there. You may close the file afterwards. The pool cannot allocate memory:
// [ImportBuffer] imports Buffers of the other process into it. The context may be of any
// device that can access the memory. It returns [ErrInvalidArgument] if f is nil.
// Source: cuMemPoolImportFromShareableHandle, cuMemPoolSetAccess, and cuMemPoolDestroy
// when closed.
func ImportPool(x *Context, f *os.File) (*Pool, error) {
	const op = "ImportPool"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	p := &poolCore{ctx: c, owned: true, imported: true}
	raw, err := connOf(f)
	if err != nil {
		return nil, wrap(op, err)
	}
	var pool *Pool
	var made error
	err = raw.Control(func(fd uintptr) {
		pool, made = p.make(op, func() error {
			if code := rt.ImportPool(&p.raw, fd); code != 0 {
				return code
			}
			return nil
		})
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return pool, made
}

// ExportPointer describes the Buffer to a process that has imported the pool which it was
// allocated from, for [ImportBuffer] there. The description is plain data. Keep the
// Buffer open until the other processes have closed theirs. Make them wait for its
// allocation and for the work that fills it: by [Event.IPCHandle], or by sending a
// message once this process has waited for that work.
//
// It returns [ErrInvalidArgument] if the memory is not of a pool, [ErrRange] if b is not
// a whole allocation, and driver.CUDA_ERROR_INVALID_VALUE if the pool cannot be shared.
// Source: cuMemPoolExportPointer.
func (b *Buffer[T]) ExportPointer() (driver.CUmemPoolPtrExportData, error) {
	const op = "Buffer.ExportPointer"
	var data driver.CUmemPoolPtrExportData
	m, err := b.acquire(op)
	if err != nil {
		return data, err
	}
	defer m.Release()
	if err := b.some(op); err != nil {
		return data, err
	}
	if m.home == nil {
		return data, refuse(op, ErrInvalidArgument, "the buffer was not allocated from a pool: see NewBufferFrom")
	}
	if b.address != m.address || b.Size() != m.size {
		return data, refuse(op, ErrRange, "%d bytes of an allocation of %d: only a whole allocation can be shared", b.Size(), m.size)
	}
	err = m.ctx.withCurrent(func() error {
		if m.pool != nil && !m.pool.exported.Load() {
			if err := m.pool.exportOnce(); err != nil {
				return err
			}
		}
		return driver.CuMemPoolExportPointer(&data, m.address)
	})
	return data, wrap(op, err)
}

// exportOnce exports the pool and closes the file: CUDA describes memory only of pools
// that were exported before.
func (p *poolCore) exportOnce() error {
	fd, err := opened(p.export)
	if err != nil {
		return err
	}
	return os.NewFile(uintptr(fd), "memory pool").Close()
}

// ImportBuffer imports a Buffer of another process, from the description of
// [Buffer.ExportPointer], into an imported pool, with n values. Close it before the other
// process closes its own: Close waits for the work of this process. It returns [ErrRange]
// if the allocation has fewer values, as far as the driver tells, and
// [ErrInvalidArgument] if the pool is not imported or the memory is imported already.
// Source: cuMemPoolImportPointer, and cuMemFree when closed.
func ImportBuffer[T any](p *Pool, data driver.CUmemPoolPtrExportData, n int) (*Buffer[T], error) {
	const op = "ImportBuffer"
	size, c, err := valuesIn[T](op, p, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if size == 0 {
		return nil, refuse(op, ErrRange, "0 values: there must be at least 1")
	}
	if !c.imported {
		return nil, refuse(op, ErrInvalidArgument, "the pool belongs to this process: import one by ImportPool")
	}
	b := &block{size: size, pool: c, free: (*block).freeImport}
	err = b.allocate(c.ctx, func() error { return b.importPointer(op, &data) })
	if err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// importPointer imports memory into the block's pool. For the same description CUDA
// returns the same address again, and a single free releases all of them. So importPointer
// refuses a second import, and repeats one that came before the free.
func (b *block) importPointer(op string, data *driver.CUmemPoolPtrExportData) error {
	for {
		freed, err := b.importOnce(op, data)
		if freed == nil {
			return err
		}
		<-freed
	}
}

// importOnce imports the memory, unless that is being freed: then it returns what is closed after that.
func (b *block) importOnce(op string, data *driver.CUmemPoolPtrExportData) (freed chan struct{}, err error) {
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := driver.CuMemPoolImportPointer(&b.address, p.raw, data); err != nil {
		return nil, err
	}
	if of, ok := p.imports[b.address]; ok {
		if of != nil {
			return of, nil
		}
		return nil, refuse(op, ErrInvalidArgument, "the memory is imported already, at %#x", uint64(b.address))
	}
	if p.imports == nil {
		p.imports = map[driver.CUdeviceptr]chan struct{}{}
	}
	if err := b.checkRoom(op, func() error { return hostWaits.With(0, b.memFree) }); err != nil {
		return nil, err
	}
	p.imports[b.address] = nil
	return nil, nil
}

// freeImport frees the memory of importPointer. CUDA waits for the context's work before, so nothing is locked.
func (b *block) freeImport() error {
	p, freed := b.pool, make(chan struct{})
	p.mu.Lock()
	p.imports[b.address] = freed
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.imports, b.address)
		close(freed)
	}()
	return b.memFree()
}

// checkRoom calls release and returns ErrRange if the block exceeds the allocation of the
// other process, as far as the driver tells. The context is current.
func (b *block) checkRoom(op string, release func() error) error {
	r, err := rangeOf(b.address)
	if err == nil && r.size > 0 && uint64(b.address)+b.size > uint64(r.start)+r.size {
		err = refuse(op, ErrRange, "%d bytes of an allocation of %d", b.size, r.size)
	}
	if err != nil {
		return errors.Join(err, release())
	}
	return nil
}

// export gets a file descriptor of the pool with the context current.
func (p *poolCore) export(fd *int32) error {
	err := driver.CuMemPoolExportToShareableHandle(unsafe.Pointer(fd), p.raw, driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
	if err == nil {
		p.exported.Store(true)
	}
	return err
}

// SetAccess sets what kernels on a device may do with the pool's memory, including memory
// that is allocated already: all (driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE) or nothing
// (driver.CU_MEM_ACCESS_FLAGS_PROT_NONE). [Context.EnablePeerAccess] has no effect on
// pools. Do not revoke access while the device uses the memory. SetAccess waits until calls
// of this package that copy between devices have returned. It returns [ErrInvalidArgument]
// if it would revoke the access of the pool's own device, and
// driver.CUDA_ERROR_INVALID_DEVICE if d cannot access the memory.
// Source: cuMemPoolSetAccess.
func (p *Pool) SetAccess(d Device, flags driver.CUmemAccess_flags) error {
	const op = "Pool.SetAccess"
	return p.do(op, func(c *poolCore) error {
		if d.raw == c.ctx.device.raw && flags != fullAccess {
			return refuse(op, ErrInvalidArgument, "%v is the pool's own device, which always has access", d)
		}
		return c.setAccess(d, flags)
	})
}

// setAccess is called with the context current.
func (p *poolCore) setAccess(d Device, flags driver.CUmemAccess_flags) error {
	access := driver.CUmemAccessDesc{Location: d.location(), Flags: flags}
	set := func() error { return driver.CuMemPoolSetAccess(p.raw, &access, 1) }
	if d.raw == p.ctx.device.raw && !p.imported { // imported memory may be on another device
		return set()
	}
	return peerCopies.Exclusive(set)
}

func poolAccess(raw driver.CUmemoryPool, d Device) (flags driver.CUmemAccess_flags, err error) {
	location := d.location()
	err = driver.CuMemPoolGetAccess(&flags, raw, &location)
	return flags, err
}

// grantAccess gives the context's device access to the pool, which it lacks at first if
// the memory is the host's, or on another device and imported. The context is current.
func (p *poolCore) grantAccess() error {
	d := p.ctx.device
	flags, err := poolAccess(p.raw, d)
	if err != nil || flags == fullAccess {
		return err
	}
	return p.setAccess(d, fullAccess)
}

// mayUse reports whether kernels of c can access a block. For memory on another device that is, or
// may be, of a pool, it asks the driver.
func (c *contextCore) mayUse(b *block) bool {
	switch {
	case c.same(b.ctx):
		return true
	case b.managed():
		return true
	case b.view != nil:
		return b.view.reachedBy(c.device)
	case b.graph != nil:
		return slices.Contains(b.peers, c.device)
	case b.of != nil: // a texture or surface works in its own context only
		return false
	case b.home == nil && b.pool == nil && !b.foreign:
		return c.reaches(b.ctx)
	}
	var flags driver.CUmemAccess_flags
	err := c.withCurrent(func() error {
		pool, err := b.poolOf()
		switch {
		case err != nil:
			return err
		case pool != 0:
			flags, err = poolAccess(pool, c.device)
		case c.reaches(b.ctx):
			flags = fullAccess
		}
		return err
	})
	return err == nil && flags == fullAccess
}

// poolOf returns the pool that a block was allocated from. A context is current.
func (b *block) poolOf() (driver.CUmemoryPool, error) {
	if b.pool != nil {
		return b.pool.raw, nil
	}
	v, err := ask(b.address, driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
	return driver.CUmemoryPool(v[0]), err
}

// ask gets attributes of an address in one call. Each has at most 64 bits; one with fewer
// sets the low bits of the answer.
func ask(address driver.CUdeviceptr, ids ...driver.CUpointer_attribute) ([]uint64, error) {
	answers := make([]uint64, len(ids))
	places := make([]unsafe.Pointer, len(ids))
	for i := range answers {
		places[i] = unsafe.Pointer(&answers[i])
	}
	var pinner runtime.Pinner // CUDA finds the answers by way of the places
	pinner.Pin(&answers[0])
	defer pinner.Unpin()
	return answers, driver.CuPointerGetAttributes(uint32(len(ids)), &ids[0], &places[0], address)
}

// reaches returns whether kernels of c may access memory of other.
func (c *contextCore) reaches(other *contextCore) bool {
	if c.same(other) {
		return true
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return c.shared.peers[other.shared]
}

// A pointerRange is the allocation that contains an address, as far as the driver tells.
type pointerRange struct {
	start driver.CUdeviceptr
	size  uint64
	ipc   bool // other processes can open it
}

func rangeOf(address driver.CUdeviceptr) (pointerRange, error) {
	v, err := ask(address, driver.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, driver.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		driver.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
	return pointerRange{driver.CUdeviceptr(v[0]), v[1], v[2] != 0}, err
}

// IPCHandle returns a handle by which another process of this machine can open the memory: see
// [OpenIPCBuffer]. The handle is plain data. It returns [ErrInvalidArgument] unless cuMemAlloc
// allocated the memory, as [NewBufferWith] does with [BufferOptions].Plain, and [ErrRange] if b
// is not a whole allocation. To share memory of pools, use [Pool.Export].
//
// CUDA places small allocations close together, and the other process may get access to
// their neighbors: share 2 MiB or more. Keep the Buffer open until the other processes
// have closed theirs. Make them wait for the work that fills it: by [Event.IPCHandle], or
// by sending a message once this process has waited for that work.
// Source: cuIpcGetMemHandle, cuPointerGetAttributes.
func (b *Buffer[T]) IPCHandle() (driver.CUipcMemHandle, error) {
	const op = "Buffer.IPCHandle"
	var h driver.CUipcMemHandle
	m, err := b.acquire(op)
	if err != nil {
		return h, err
	}
	defer m.Release()
	if err := b.some(op); err != nil {
		return h, err
	}
	err = m.ctx.withCurrent(func() error {
		r, err := rangeOf(b.address)
		switch {
		case err != nil:
			return err
		case !r.ipc:
			return refuse(op, ErrInvalidArgument, "other processes can open only memory of cuMemAlloc: allocate it by NewBufferWith and BufferOptions.Plain, or share a pool by Pool.Export")
		case b.address != r.start || b.Size() != m.size:
			return refuse(op, ErrRange, "%d bytes of an allocation of %d: only a whole allocation can be shared", b.Size(), r.size)
		}
		return driver.CuIpcGetMemHandle(&h, b.address)
	})
	return h, wrap(op, err)
}

// OpenIPCBuffer opens memory of another process, from the handle of [Buffer.IPCHandle],
// with n values. If the memory is on another device, peer access to it is enabled.
// [Buffer.Close] waits for the work of this process that uses the memory, and does not
// free it. It returns [ErrRange] if the allocation has fewer values, and
// driver.CUDA_ERROR_INVALID_CONTEXT in the process that has allocated the memory.
// Source: cuIpcOpenMemHandle, and cuIpcCloseMemHandle when closed.
func OpenIPCBuffer[T any](x *Context, h driver.CUipcMemHandle, n int) (*Buffer[T], error) {
	const op = "OpenIPCBuffer"
	size, c, err := valuesIn[T](op, x, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if size == 0 {
		return nil, refuse(op, ErrRange, "0 values: there must be at least 1")
	}
	b := &block{size: size, free: (*block).ipcClose}
	err = b.allocate(c, func() error {
		err := peerCopies.Exclusive(func() error { // the memory may be on another device
			return driver.CuIpcOpenMemHandle(&b.address, h, driver.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		})
		if err != nil {
			return err
		}
		return b.checkRoom(op, b.ipcClose)
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

func (b *block) ipcClose() error { return driver.CuIpcCloseMemHandle(b.address) }
