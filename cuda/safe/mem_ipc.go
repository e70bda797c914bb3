package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

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
