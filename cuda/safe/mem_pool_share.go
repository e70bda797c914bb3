package safe

import (
	"errors"
	"os"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Export makes a file by which another process of this machine can import the pool,
// with [ImportPool]. The file is sent as one of os/exec.Cmd's ExtraFiles, or over a
// Unix socket, and may be closed then. The pool must have been made with the handle
// type driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, else the error is CUDA's,
// driver.CUDA_ERROR_INVALID_VALUE. Source: cuMemPoolExportToShareableHandle.
func (p *Pool) Export() (*os.File, error) {
	fd, err := opened(func(fd *int32) error {
		return p.do("Pool.Export", func(c *poolCore) error { return c.export(fd) })
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "memory pool"), nil
}

// ImportPool makes a pool of another process usable here, by the file that
// [Pool.Export] made there, which may be closed afterwards. Nothing can be
// allocated from it: buffers of the other process come by [ImportBuffer]. The context may be
// of any device that can reach the memory.
// Source: cuMemPoolImportFromShareableHandle, cuMemPoolSetAccess, and
// cuMemPoolDestroy when closed.
func ImportPool(x *Context, f *os.File) (*Pool, error) {
	const op = "ImportPool"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if f == nil {
		return nil, refuse(op, ErrInvalidArgument, "no file")
	}
	p := &poolCore{ctx: c, owned: true, imported: true}
	raw, err := f.SyscallConn()
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

// ExportPointer describes the buffer to a process that has imported the pool which it
// was allocated from, for [ImportBuffer]. The description is plain data. The buffer
// must be all of an allocation, else the error is [ErrRange], and memory of a pool,
// else it is [ErrInvalidArgument]; a pool that is not shared is CUDA's
// driver.CUDA_ERROR_INVALID_VALUE. Keep the buffer open until the other processes have
// closed theirs, and have them wait for its allocation and for the work that fills it: by
// [Event.IPCHandle], or by a message behind a wait of this process.
// Source: cuMemPoolExportPointer.
func (b *Buffer[T]) ExportPointer() (driver.CUmemPoolPtrExportData, error) {
	const op = "Buffer.ExportPointer"
	var data driver.CUmemPoolPtrExportData
	m, err := b.acquire(op)
	if err != nil {
		return data, err
	}
	defer m.Release()
	if m.home == nil {
		return data, refuse(op, ErrInvalidArgument, "the buffer was not allocated from a pool: see NewBufferFrom")
	}
	if b.address != m.address || b.Size() != m.size {
		return data, refuse(op, ErrRange, "%d bytes of an allocation of %d, which can be shared as a whole only", b.Size(), m.size)
	}
	err = m.ctx.withCurrent(func() error {
		err := driver.CuMemPoolExportPointer(&data, m.address)
		if err != driver.CUDA_ERROR_INVALID_VALUE || m.pool == nil {
			return err
		}
		if err := m.pool.exportOnce(); err != nil {
			return err
		}
		return driver.CuMemPoolExportPointer(&data, m.address)
	})
	return data, wrap(op, err)
}

// exportOnce exports the pool and forgets the file: CUDA describes memory of no pool
// that was never exported.
func (p *poolCore) exportOnce() error {
	fd, err := opened(p.export)
	if err != nil {
		return err
	}
	return os.NewFile(uintptr(fd), "memory pool").Close()
}

// ImportBuffer is a buffer of another process, which has sent its description by
// [Buffer.ExportPointer], in an imported pool. It has n values; more than were
// allocated are [ErrRange] where the driver tells. Close it before the other
// process closes its own: it waits for the work of this process. A pool that is not
// imported is [ErrInvalidArgument].
// Source: cuMemPoolImportPointer, and cuMemFree when closed.
func ImportBuffer[T any](p *Pool, data driver.CUmemPoolPtrExportData, n int) (*Buffer[T], error) {
	const op = "ImportBuffer"
	size, c, err := valuesIn[T](op, p, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if !c.imported {
		return nil, refuse(op, ErrInvalidArgument, "the pool is this process's own")
	}
	b := &block{size: size, pool: c, free: (*block).letImportGo}
	err = b.allocate(c.ctx, func() error { return b.importPointer(op, &data) })
	if err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// importPointer imports memory into the block's pool. CUDA gives one address for the
// same description again, and takes one free for all.
func (b *block) importPointer(op string, data *driver.CUmemPoolPtrExportData) error {
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := driver.CuMemPoolImportPointer(&b.address, p.raw, data); err != nil {
		return err
	}
	if _, ok := p.imports[b.address]; ok {
		return refuse(op, ErrInvalidArgument, "the memory at %#x is imported already", uint64(b.address))
	}
	if p.imports == nil {
		p.imports = map[driver.CUdeviceptr]struct{}{}
	}
	if err := b.checkRoom(op, b.memFree); err != nil {
		return err
	}
	p.imports[b.address] = struct{}{}
	return nil
}

// letImportGo frees what importPointer has imported.
func (b *block) letImportGo() error {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	delete(b.pool.imports, b.address)
	return b.memFree()
}

// checkRoom gives a block of another process back if it is larger than what was allocated there, as
// far as the driver tells. The context is current.
func (b *block) checkRoom(op string, giveBack func() error) error {
	r, err := rangeOf(b.address)
	if err == nil && r.size > 0 && uint64(b.address)+b.size > uint64(r.start)+r.size {
		err = refuse(op, ErrRange, "%d bytes of an allocation of %d", b.size, r.size)
	}
	if err != nil {
		return errors.Join(err, giveBack())
	}
	return nil
}

// export asks for a file descriptor of the pool. The context is current.
func (p *poolCore) export(fd *int32) error {
	return driver.CuMemPoolExportToShareableHandle(unsafe.Pointer(fd), p.raw, driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
}
