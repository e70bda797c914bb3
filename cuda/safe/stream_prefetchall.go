package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// PrefetchOp is a range of managed memory for [Stream.PrefetchAll] and
// [Stream.DiscardAll]: see [NewPrefetchOp].
type PrefetchOp struct {
	of span
	to Location
}

// NewPrefetchOp returns an operation on the memory of b, with the location for it to move to. [Stream.PrefetchAll] and
// [Stream.DiscardAll] return the errors of the arguments.
func NewPrefetchOp[T any](b *Buffer[T], to Location) PrefetchOp {
	return PrefetchOp{b.span(nil), to}
}

// PrefetchAll enqueues many prefetches, up to 12 in each call of the driver: see [Buffer.PrefetchAsync]. They run after
// the earlier work of the stream, in any order among themselves. If one operation is invalid, no operation of the same
// driver call is enqueued. It blocks while 48 prefetches or more are pending on the stream.
//
// The errors are those of [Buffer.PrefetchAsync], which apply to all devices of the system; and [ErrInvalidArgument]
// for the legacy default stream. With a driver before CUDA 13.0, it enqueues the prefetches one by one.
//
// Source: cuMemPrefetchBatchAsync, or cuMemPrefetchAsync.
func (s *Stream) PrefetchAll(ops []PrefetchOp) error {
	return s.batchRanges("Stream.PrefetchAll", ops, true, func(b *ranges, stream driver.CUstream) error {
		to, from := b.locations()
		n, k := uint64(len(b.at)), uint64(len(to))
		err := driver.CuMemPrefetchBatchAsync(&b.at[0], &b.sizes[0], n, &to[0], &from[0], k, 0, stream)
		if !errors.Is(err, ErrNotSupported) {
			return err
		}
		for i := range b.at { // before CUDA 13.0
			if err := prefetch(b.at[i], b.sizes[i], b.to[i], stream); err != nil {
				return err
			}
		}
		return nil
	})
}

// DiscardAll enqueues a batch that discards the contents of managed memory, so that CUDA need
// not migrate its pages. Until the program writes to the memory or prefetches it, reads return
// indeterminate values. Nothing may access the memory while it is discarded. DiscardAll
// ignores the locations of the operations, which may be the zero value.
//
// Driver 580 occasionally loses a write (measured, also in C: one in some 5,000): memory that was discarded, prefetched to
// the device and written there then reads as zeros on the host.
//
// The rules and errors are those of [Stream.PrefetchAll]. It returns [ErrNotSupported]
// with a driver before CUDA 13.0.
//
// Source: cuMemDiscardBatchAsync.
func (s *Stream) DiscardAll(ops []PrefetchOp) error {
	return s.batchRanges("Stream.DiscardAll", ops, false, func(b *ranges, stream driver.CUstream) error {
		return driver.CuMemDiscardBatchAsync(&b.at[0], &b.sizes[0], uint64(len(b.at)), 0, stream)
	})
}

// prefetch enqueues one operation.
func prefetch(at driver.CUdeviceptr, size uint64, to Location, stream driver.CUstream) error {
	err := driver.CuMemPrefetchAsync_v2(at, size, to.raw(), 0, stream)
	if d, ok := to.device(); ok && errors.Is(err, ErrNotSupported) { // before CUDA 12.2
		err = driver.CuMemPrefetchAsync_v1(at, size, d, stream)
	}
	return err
}

// ranges is a list of operations in CUDA's form. Its blocks are acquired.
type ranges struct {
	at     []driver.CUdeviceptr
	sizes  []uint64
	to     []Location
	blocks []*block
}

// locations returns the locations as CUDA takes them: to[i] is that of the operations from
// from[i] on.
func (b *ranges) locations() (to []driver.CUmemLocation, from []uint64) {
	for i, l := range b.to {
		if i == 0 || l != b.to[i-1] {
			to, from = append(to, l.raw()), append(from, uint64(i))
		}
	}
	return to, from
}

// batchRanges enqueues a batch: call calls the driver for a part of it. moves tells whether the locations matter.
func (s *Stream) batchRanges(op string, ops []PrefetchOp, moves bool, call func(*ranges, driver.CUstream) error) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if c.raw <= driver.CU_STREAM_LEGACY {
		return refuse(op, ErrInvalidArgument, "the legacy default stream cannot run a batch; use another stream")
	}
	if len(ops) == 0 {
		return nil
	}
	b := &ranges{}
	defer b.release()
	for i := range ops {
		if err := b.add(op, &ops[i], moves); err != nil {
			return numberedAs("operation", err, i)
		}
	}
	if len(b.at) == 0 {
		return nil
	}
	if _, err := c.ctx.device.needs(op, driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS); err != nil {
		return err
	}
	return inParts(len(b.at), chunkPlaces/prefetchPlaces, func(from, to int) error {
		part := &ranges{at: b.at[from:to], sizes: b.sizes[from:to], to: b.to[from:to]}
		return c.enqueueCurrent(op, (to-from)*prefetchPlaces, b.blocks, "a batch of prefetches or discards cannot be captured",
			func() error { return call(part, c.raw) })
	})
}

func (b *ranges) add(op string, o *PrefetchOp, moves bool) error {
	m, err := o.of.memory.acquire(op)
	if err != nil {
		return err
	}
	b.blocks = append(b.blocks, m)
	if err := m.movable(op); err != nil {
		return err
	}
	if moves {
		if err := o.to.check(op); err != nil {
			return err
		}
	}
	if o.of.size == 0 {
		return nil
	}
	b.at, b.sizes, b.to = append(b.at, o.of.at), append(b.sizes, o.of.size), append(b.to, o.to)
	return nil
}

func (b *ranges) release() {
	for _, m := range b.blocks {
		m.Release()
	}
}
