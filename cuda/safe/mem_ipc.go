package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// IPCHandle lets another process of this machine open the buffer, by [OpenIPCBuffer].
// It is plain data, to be sent in any way. The buffer must be all of an allocation, else
// the error is [ErrRange], and memory of [NewBuffer], or of somebody else's cuMemAlloc,
// else it is [ErrInvalidArgument]; memory of pools is shared by [Pool.Export].
//
// Small allocations lie close together, and the other process may come to see its
// neighbours: share 2 MiB or more. Keep the buffer open until the other processes
// have closed theirs, and have them wait for the work that fills it: by
// [Event.IPCHandle], or by a message behind a wait of this process.
// Source: cuIpcGetMemHandle, cuPointerGetAttributes.
func (b *Buffer[T]) IPCHandle() (driver.CUipcMemHandle, error) {
	const op = "Buffer.IPCHandle"
	var h driver.CUipcMemHandle
	m, err := b.acquire(op)
	if err != nil {
		return h, err
	}
	defer m.Release()
	err = m.ctx.withCurrent(func() error {
		r, err := rangeOf(b.address)
		switch {
		case err != nil:
			return err
		case !r.ipc:
			return refuse(op, ErrInvalidArgument, "other processes can open memory of NewBuffer alone, and that of pools by Pool.Export")
		case b.address != r.start || b.Size() != m.size:
			return refuse(op, ErrRange, "%d bytes of an allocation of %d, which can be shared as a whole only", b.Size(), r.size)
		}
		return driver.CuIpcGetMemHandle(&h, b.address)
	})
	return h, wrap(op, err)
}

// OpenIPCBuffer opens memory of another process, which has sent its handle by
// [Buffer.IPCHandle], as n values; more than were allocated are [ErrRange]. Where
// the memory is another device's, that is made accessible. Closing it waits for the work
// of this process that uses it, and frees nothing. The process that has allocated the memory
// cannot open it: that is driver.CUDA_ERROR_INVALID_CONTEXT.
// Source: cuIpcOpenMemHandle, and cuIpcCloseMemHandle when closed.
func OpenIPCBuffer[T any](x *Context, h driver.CUipcMemHandle, n int) (*Buffer[T], error) {
	const op = "OpenIPCBuffer"
	size, c, err := valuesIn[T](op, x, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: size, free: (*block).ipcClose}
	err = b.allocate(c, func() error {
		if err := driver.CuIpcOpenMemHandle(&b.address, h, uint32(driver.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)); err != nil {
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
