package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// CopyFrom copies other pinned memory to the beginning of h. It waits for all work that
// uses either, then copies on an internal stream, and returns when the copy has completed.
// It returns [ErrRange] if h is shorter than src, [ErrOverlap] if they overlap, and
// [ErrCapturing] if a stream that uses either is capturing.
// Source: cuMemcpyAsync, cuStreamSynchronize.
func (h *Pinned[T]) CopyFrom(src *Pinned[T]) error {
	const op = "Pinned.CopyFrom"
	m, from, err := acquireBoth(op, h, src)
	if err != nil {
		return err
	}
	defer m.Release()
	defer from.Release()
	to, of := h.span(nil), src.span(nil)
	c, _, err := to.copyFrom(op, &of)
	if err != nil {
		return err
	}
	return m.copyNow(op, &c, nil, m, from)
}

// CopyFromAsync enqueues [Pinned.CopyFrom] on a stream of any context. Do not read or
// write h, nor change src, before the copy has completed. A capture records the copy.
// Source: cuMemcpyAsync.
func (h *Pinned[T]) CopyFromAsync(s *Stream, src *Pinned[T]) error {
	const op = "Pinned.CopyFromAsync"
	m, from, err := acquireBoth(op, h, src)
	if err != nil {
		return err
	}
	defer m.Release()
	defer from.Release()
	to, of := h.span(nil), src.span(nil)
	c, _, err := to.copyFrom(op, &of)
	if err != nil {
		return err
	}
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	return sc.onHost(op, &c, nil, m, from)
}

// Zero has the device set all bytes of h to 0. It waits for all work that uses h, and
// returns when the memory is cleared. It returns [ErrCapturing] if a stream that uses h is
// capturing, and [ErrInvalidArgument] if the device cannot access h.
// Source: cuMemsetD8Async, cuStreamSynchronize.
func (h *Pinned[T]) Zero() error {
	s := h.span(nil)
	return s.fillNow("Pinned.Zero", zeroing(s.size))
}

// ZeroAsync enqueues [Pinned.Zero] on a stream of any context. Do not read or write h
// before the work has completed.
// Source: cuMemsetD8Async.
func (h *Pinned[T]) ZeroAsync(s *Stream) error {
	return h.set("Pinned.ZeroAsync", s, zeroing(h.Size()))
}

// Fill has the device set every value of h to v, as [Buffer.Fill] does for a buffer. It returns
// [ErrInvalidArgument] if T has more than 4,000 bytes. Otherwise it behaves as [Pinned.Zero].
// Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async or cuLaunchKernel,
// cuStreamSynchronize.
func (h *Pinned[T]) Fill(v T) error {
	const op = "Pinned.Fill"
	s := h.span(nil)
	f, err := filling(op, v, s.n)
	if err != nil {
		return err
	}
	return s.fillNow(op, f)
}

// FillAsync enqueues [Pinned.Fill] on a stream of any context. Do not read or write h
// before the work has completed.
// Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async or cuLaunchKernel.
func (h *Pinned[T]) FillAsync(s *Stream, v T) error {
	const op = "Pinned.FillAsync"
	f, err := filling(op, v, h.Len())
	if err != nil {
		return err
	}
	return h.set(op, s, f)
}

func (h *Pinned[T]) set(op string, s *Stream, f fill) error {
	m, err := h.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	at, err := m.mapped(op, h.data)
	if err != nil {
		return err
	}
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	c, host, err := f.at(sc.ctx, at)
	if err != nil {
		return wrap(op, err)
	}
	return sc.onHost(op, &c, host, m)
}

// mapped returns the address at which devices access the block's host memory at data.
func (b *block) mapped(op string, data unsafe.Pointer) (driver.CUdeviceptr, error) {
	if b.size == 0 {
		return 0, nil
	}
	if b.address == 0 {
		return 0, refuse(op, ErrInvalidArgument, "the device cannot access this pinned memory")
	}
	return b.address + driver.CUdeviceptr(uintptr(data)-uintptr(b.host)), nil
}

// onHost enqueues a copy or a fill of pinned memory, which is portable: the stream may
// belong to any context.
func (s *streamCore) onHost(op string, c *rt.Copy, host unsafe.Pointer, blocks ...*block) error {
	if c.Size == 0 {
		return nil
	}
	c.Context, c.Stream = s.callContext, s.raw
	return s.enqueue(op, 1, blocks, "", func() error { return check(op, c.Do(host)) })
}
