package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Zero sets all values to 0. It waits for all work that uses b, and returns when the
// memory is cleared. It returns [ErrInvalidArgument] unless b is device memory, and not
// an array, and [ErrCapturing] if a stream that uses b is capturing.
// Source: cuMemsetD2D8Async, cuStreamSynchronize.
func (b *Pitched[T]) Zero() error { return b.setNow("Pitched.Zero", b.zero()) }

// ZeroAsync enqueues [Pitched.Zero]. If b is a part of a volume with room between its slices,
// ZeroAsync enqueues a memset for each slice, and work of other goroutines may come between them.
// Source: cuMemsetD2D8Async.
func (b *Pitched[T]) ZeroAsync(s *Stream) error { return b.set("Pitched.ZeroAsync", s, b.zero()) }

// zero describes setting a row to 0.
func (b *Pitched[T]) zero() fill {
	var zero T
	return zeroing(uint64(b.Extent().Width) * uint64(unsafe.Sizeof(zero)))
}

// Fill sets every value to v, as [Buffer.Fill] does for a buffer. It waits for all work that
// uses b, and returns when the memory is set. It returns [ErrInvalidArgument] unless T has at
// most 4,000 bytes and b is device memory, and not an array, and if T has 2 or 4 bytes and the
// pitch is not a multiple of that. It returns [ErrCapturing] if a stream that uses b is capturing.
// Source: cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async or cuLaunchKernel,
// cuStreamSynchronize.
func (b *Pitched[T]) Fill(v T) error {
	const op = "Pitched.Fill"
	row, err := filling(op, v, b.Extent().Width)
	if err != nil {
		return err
	}
	return b.setNow(op, row)
}

// FillAsync enqueues [Pitched.Fill], as [Pitched.ZeroAsync] does.
// Source: cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async or cuLaunchKernel.
func (b *Pitched[T]) FillAsync(s *Stream, v T) error {
	const op = "Pitched.FillAsync"
	row, err := filling(op, v, b.Extent().Width)
	if err != nil {
		return err
	}
	return b.set(op, s, row)
}

func (b *Pitched[T]) setNow(op string, row fill) error {
	m, err := b.setting(op, row)
	if err != nil {
		return err
	}
	defer m.Release()
	return m.ctx.doNow(op, []*block{m}, func(stream driver.CUstream) error {
		rows := b.rowsOf(b.bytes())
		return b.setRows(row, rows, 0, rows.slices, stream)
	})
}

func (b *Pitched[T]) set(op string, s *Stream, row fill) error {
	m, err := b.setting(op, row)
	if err != nil {
		return err
	}
	defer m.Release()
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if !m.ctx.same(c.ctx) {
		return refuse(op, ErrContextMismatch, "the memory belongs to a context of %v, the stream to one of %v", m.ctx.device, c.ctx.device)
	}
	rows := b.rowsOf(b.bytes())
	return inParts(rows.slices, chunkWork, func(from, to int) error {
		return c.enqueueCurrent(op, to-from, []*block{m}, "", func() error { return b.setRows(row, rows, from, to, c.raw) })
	})
}

// setting checks a fill of rows, and acquires the block. It loads the kernel for the fill, if it
// takes one, which must not happen with the stream locked.
func (b *Pitched[T]) setting(op string, row fill) (*block, error) {
	m, err := b.acquire(op)
	if err != nil {
		return nil, err
	}
	width := map[rt.CopyKind]uint64{rt.Set8: 1, rt.Set16: 2, rt.Set32: 4}[row.memset.Kind]
	switch {
	case b.kind != driver.CU_MEMORYTYPE_DEVICE:
		err = refuse(op, ErrInvalidArgument, "only device memory can be filled, not host memory or an array")
	case row.value != nil:
		_, err = row.rows(m.ctx, b.address, b.pitch, 1)
		err = wrap(op, err)
	case b.pitch%width != 0:
		err = refuse(op, ErrInvalidArgument, "the pitch of %d bytes is not a multiple of the values' size of %d", b.pitch, width)
	}
	if err != nil && m != nil {
		m.Release()
	}
	return m, err
}

// sliced are rows as memsets take them: slices of so many rows each.
type sliced struct {
	height uint64
	slices int
}

// rowsOf returns all rows as one slice, unless there is room between the slices.
func (p *place) rowsOf(all byteExtent) sliced {
	if p.rows == all.height {
		return sliced{all.height * all.depth, 1}
	}
	return sliced{all.height, int(all.depth)}
}

// setRows calls CUDA once for each slice, with the context current.
func (p *place) setRows(row fill, rows sliced, from, to int, s driver.CUstream) error {
	for i := from; i < to; i++ {
		if err := p.setSlice(row, p.address+driver.CUdeviceptr(uint64(i)*p.rows*p.pitch), rows.height, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *place) setSlice(row fill, at driver.CUdeviceptr, height uint64, s driver.CUstream) error {
	value, width := row.memset.Src, row.memset.Size
	switch {
	case row.value != nil:
		l, err := row.rows(p.memory.ctx, at, p.pitch, height)
		if err != nil {
			return err
		}
		if code, _ := rt.Batch(0, s, l.list(), 1, false); code != 0 {
			return code
		}
		return nil
	case row.memset.Kind == rt.Set8:
		return driver.CuMemsetD2D8Async(at, p.pitch, uint8(value), width, height, s)
	case row.memset.Kind == rt.Set16:
		return driver.CuMemsetD2D16Async(at, p.pitch, uint16(value), width, height, s)
	default:
		return driver.CuMemsetD2D32Async(at, p.pitch, uint32(value), width, height, s)
	}
}
