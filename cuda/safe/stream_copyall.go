package safe

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// CopyOp is a copy for [Stream.CopyAll]: see [NewCopyOp].
type CopyOp struct {
	dst, src span
	err      error
}

// NewCopyOp returns a copy of all of src to the beginning of dst, which must be at least as long. At least one of them
// must be device memory. [Stream.CopyAll] returns the errors of the arguments.
func NewCopyOp[T any](dst, src Memory[T]) CopyOp {
	const op = "NewCopyOp"
	c := CopyOp{dst: spanOf(dst), src: spanOf(src)}
	switch {
	case c.dst.memory == nil || c.src.memory == nil:
		c.err = &Error{Op: op, Err: ErrClosed}
	case c.src.n > c.dst.n:
		c.err = fits(op, c.src.n, c.dst.n)
	case c.src.n == 0:
		c.err = refuse(op, ErrRange, "the source is empty: leave out such a copy")
	case c.dst.host != nil && c.src.host != nil:
		c.err = refuse(op, ErrInvalidArgument, "source and destination are both host memory")
	}
	return c
}

// CopyAll enqueues many copies, up to 240 in each call of the driver. They run after the
// earlier work of the stream, in any order among themselves. If one copy is invalid, no copy of
// the same driver call is enqueued, and the error's Detail has its index if the driver tells it.
// CopyAll returns [ErrOverlap] if a destination overlaps another destination or a source, and
// [ErrContextMismatch] if device memory belongs to another context than the stream.
//
// It returns [ErrInvalidArgument] for the legacy default stream and for a copy from host memory
// to host memory, and [ErrCapturing] if the stream is capturing. With a driver before CUDA 12.8,
// and on a stream of a green context, it enqueues the copies one by one.
//
// Source: cuMemcpyBatchAsync, or cuMemcpyAsync.
func (s *Stream) CopyAll(copies []CopyOp) error {
	const op = "Stream.CopyAll"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if c.raw <= driver.CU_STREAM_LEGACY {
		return refuse(op, ErrInvalidArgument, "the legacy default stream cannot run a batch; use another stream")
	}
	if len(copies) == 0 {
		return nil
	}
	b := &copyList{}
	defer b.release()
	for i := range copies {
		if err := b.add(op, c, &copies[i]); err != nil {
			return numberedAs("copy", err, i)
		}
	}
	if i := b.overlap(); i >= 0 {
		return refuse(op, ErrOverlap, "copy %d: its destination overlaps memory of another copy", i)
	}
	return inParts(len(copies), chunkPlaces, func(from, to int) error {
		failed := uint64(math.MaxUint64)
		part := copyList{dsts: b.dsts[from:to], srcs: b.srcs[from:to], sizes: b.sizes[from:to]}
		err := c.enqueueCurrent(op, to-from, b.blocks, "a batch of copies cannot be captured", func() (err error) {
			if c.onGreen { // CUDA 13.0 crashes in a batch with memory of a pool there
				failed, err = part.enqueueSingly(c.raw)
			} else {
				failed, err = part.enqueue(c.raw)
			}
			return err
		})
		if err != nil && failed < uint64(to-from) {
			return numberedAs("copy", err, from+int(failed))
		}
		return err
	})
}

// A copyList is a list of copies in CUDA's form. Its blocks are acquired.
type copyList struct {
	dsts, srcs []driver.CUdeviceptr
	sizes      []uint64
	blocks     []*block
}

func (b *copyList) add(op string, s *streamCore, c *CopyOp) error {
	if c.err != nil {
		return wrap(op, c.err)
	}
	for _, side := range []*span{&c.dst, &c.src} {
		m, err := side.memory.acquire(op)
		if err != nil {
			return err
		}
		b.blocks = append(b.blocks, m)
		if side.host == nil && !m.ctx.same(s.ctx) {
			return refuse(op, ErrContextMismatch, "the memory belongs to a context of %v, the stream to one of %v", m.ctx.device, s.ctx.device)
		}
	}
	b.dsts, b.srcs, b.sizes = append(b.dsts, c.dst.at), append(b.srcs, c.src.at), append(b.sizes, c.src.size)
	return nil
}

func (b *copyList) release() {
	for _, m := range b.blocks {
		m.Release()
	}
}

// overlap returns the index of a copy whose destination overlaps another destination or a
// source, or -1.
func (b *copyList) overlap() int {
	order := make([]int, len(b.dsts)) // indices of the destinations, by address
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, k int) int { return cmp.Compare(b.dsts[i], b.dsts[k]) })
	for n, i := range order[1:] {
		if before := order[n]; uint64(b.dsts[i]-b.dsts[before]) < b.sizes[before] {
			return i
		}
	}
	for i, src := range b.srcs {
		end := src + driver.CUdeviceptr(b.sizes[i])
		// The last destination that begins before the source ends.
		n, _ := slices.BinarySearchFunc(order, end, func(i int, end driver.CUdeviceptr) int { return cmp.Compare(b.dsts[i], end) })
		if n > 0 {
			if k := order[n-1]; src < b.dsts[k]+driver.CUdeviceptr(b.sizes[k]) {
				return k
			}
		}
	}
	return -1
}

// enqueue calls the newest function that the driver has. failed is the index of the copy
// that caused the error, or more than any index if that is unknown.
func (b *copyList) enqueue(s driver.CUstream) (failed uint64, err error) {
	a := driver.CUmemcpyAttributes{SrcAccessOrder: driver.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}
	failed = math.MaxUint64
	var first uint64 // the attributes apply from this copy on: to all
	n := uint64(len(b.sizes))
	err = driver.CuMemcpyBatchAsync_v2(&b.dsts[0], &b.srcs[0], &b.sizes[0], n, &a, &first, 1, s)
	if errors.Is(err, ErrNotSupported) { // before CUDA 13.0
		err = driver.CuMemcpyBatchAsync_v1(&b.dsts[0], &b.srcs[0], &b.sizes[0], n, &a, &first, 1, &failed, s)
	}
	if errors.Is(err, ErrNotSupported) { // before CUDA 12.8
		return b.enqueueSingly(s)
	}
	return failed, err
}

// enqueueSingly enqueues the copies one by one. failed is as for enqueue.
func (b *copyList) enqueueSingly(s driver.CUstream) (failed uint64, err error) {
	for i := range b.sizes {
		if err := driver.CuMemcpyAsync(b.dsts[i], b.srcs[i], b.sizes[i], s); err != nil {
			return uint64(i), err
		}
	}
	return math.MaxUint64, nil
}
