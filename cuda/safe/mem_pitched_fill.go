package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Zero clears the box, behind all work that uses it, and returns when that is done.
// The box must be memory of a device, and no array.
// Source: cuMemsetD2D8Async, cuStreamSynchronize.
func (b *Pitched[T]) Zero() error { return b.setNow("Pitched.Zero", b.zero()) }

// ZeroAsync puts [Pitched.Zero] on a stream. Source: cuMemsetD2D8Async.
func (b *Pitched[T]) ZeroAsync(s *Stream) error { return b.set("Pitched.ZeroAsync", s, b.zero()) }

// zero is the memset of a row with zeros.
func (b *Pitched[T]) zero() rt.Copy {
	var zero T
	return rt.Copy{Kind: rt.Set8, Size: uint64(b.Extent().Width) * uint64(unsafe.Sizeof(zero))}
}

// Fill sets every value of the box, behind all work that uses it, and returns when
// that is done. T must have 1, 2 or 4 bytes, the box must be memory of a device and no
// array, and its pitch a multiple of T's size.
// Source: cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async, cuStreamSynchronize.
func (b *Pitched[T]) Fill(v T) error {
	const op = "Pitched.Fill"
	row, err := filling(op, v, b.Extent().Width)
	if err != nil {
		return err
	}
	return b.setNow(op, row)
}

// FillAsync puts [Pitched.Fill] on a stream.
// Source: cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async.
func (b *Pitched[T]) FillAsync(s *Stream, v T) error {
	const op = "Pitched.FillAsync"
	row, err := filling(op, v, b.Extent().Width)
	if err != nil {
		return err
	}
	return b.set(op, s, row)
}

func (b *Pitched[T]) setNow(op string, row rt.Copy) error {
	m, err := b.setting(op, row)
	if err != nil {
		return err
	}
	defer m.Release()
	return m.ctx.doNow(op, []*block{m}, func(stream driver.CUstream) error {
		return b.setRows(row, b.bytes(), stream)
	})
}

func (b *Pitched[T]) set(op string, s *Stream, row rt.Copy) error {
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
		return refuse(op, ErrContextMismatch, "the box is of %v, the stream of %v", m.ctx.device, c.ctx.device)
	}
	return c.enqueueCurrent(op, []*block{m}, "", func() error { return b.setRows(row, b.bytes(), c.raw) })
}

// setting checks a memset of rows, and marks the memory.
func (b *Pitched[T]) setting(op string, row rt.Copy) (*block, error) {
	m, err := b.acquire(op)
	if err != nil {
		return nil, err
	}
	width := map[rt.CopyKind]uint64{rt.Set8: 1, rt.Set16: 2, rt.Set32: 4}[row.Kind]
	switch {
	case b.kind != driver.CU_MEMORYTYPE_DEVICE:
		err = refuse(op, ErrInvalidArgument, "the box is not memory of a device")
	case b.pitch%width != 0:
		err = refuse(op, ErrInvalidArgument, "a pitch of %d bytes is no multiple of the values' %d", b.pitch, width)
	default:
		return m, nil
	}
	if m != nil {
		m.Release()
	}
	return nil, err
}

// setRows calls CUDA, once for all slices if there is no room between them. The
// context is current.
func (e *end) setRows(row rt.Copy, all bulk, s driver.CUstream) error {
	height, slices := all.height, all.depth
	if e.rows == height {
		height, slices = height*slices, 1
	}
	for i := range slices {
		at := e.address + driver.CUdeviceptr(i*e.rows*e.pitch)
		var err error
		switch row.Kind {
		case rt.Set8:
			err = driver.CuMemsetD2D8Async(at, e.pitch, uint8(row.Src), row.Size, height, s)
		case rt.Set16:
			err = driver.CuMemsetD2D16Async(at, e.pitch, uint16(row.Src), row.Size, height, s)
		default:
			err = driver.CuMemsetD2D32Async(at, e.pitch, uint32(row.Src), row.Size, height, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
