package safe

import (
	"errors"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
)

// An Arena allocates many short-lived buffers of one stream: see [NewBufferIn]. It allocates large blocks of memory in
// stream order and hands out parts of them without calling the driver. [Arena.Reset] closes all its buffers at once.
// Any number of goroutines may use an Arena at once.
type Arena struct{ *arenaCore }

// An arenaCore is what an Arena and its copies share.
type arenaCore struct {
	stream *streamCore // of user when the arena was made: the program may write another into that
	user   *Stream     // stays reachable

	mu     admit.Mutex[admit.OwnerRank] // held while a block is allocated
	blocks []*memory                    // the last one has room
	used   uint64                       // of the last block
	most   uint64                       // size of the next block in bytes
	closed atomic.Bool                  // set with mu held
}

// arenaAlign is the alignment of buffers, as of those of cuMemAlloc.
const arenaAlign = 256

// NewArena creates an arena whose first block has size bytes. The block is allocated with
// the first buffer. NewArena returns [ErrRange] if size is below 1.
func NewArena(s *Stream, size int) (*Arena, error) {
	const op = "NewArena"
	c, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if size < 1 {
		return nil, refuse(op, ErrRange, "%d bytes, but there must be at least 1", size)
	}
	return &Arena{&arenaCore{stream: c, user: s, most: aligned(uint64(size))}}, nil
}

// none returns whether a is nil or a zero value.
func (a *Arena) none() bool { return a == nil || a.arenaCore == nil }

func aligned(size uint64) uint64 { return (size + arenaAlign - 1) &^ (arenaAlign - 1) }

// NewBufferIn allocates device memory for n values from an arena, aligned to 256 bytes. The
// memory is not initialized. The arena's stream may use it at once; other streams may do so
// once they have waited for an event recorded on that stream after this call. The Buffer is
// closed by [Arena.Reset] or [Arena.Close]: its own Close does nothing.
//
// If the arena has no room left, it takes another block. NewBufferIn then returns
// [ErrCapturing] if the stream is capturing, [ErrNotSupported] if the device has no memory
// pools, and driver.CUDA_ERROR_OUT_OF_MEMORY if the device has too little memory left. It
// returns [ErrInvalidArgument] if T contains Go pointers or bools or has no size, and [ErrRange] if n
// is negative.
// Source: cuMemAllocFromPoolAsync for a block.
func NewBufferIn[T any](a *Arena, n int) (*Buffer[T], error) {
	const op = "NewBufferIn"
	size, err := sizeOf[T](n)
	if err != nil {
		return nil, wrap(op, err)
	}
	m, address, err := a.take(size)
	if err != nil {
		return nil, wrap(op, err)
	}
	return &Buffer[T]{memory: m, address: address, n: n, part: true}, nil
}

// take returns a part of a block.
func (a *Arena) take(size uint64) (*memory, driver.CUdeviceptr, error) {
	if a.none() {
		return nil, 0, ErrClosed
	}
	if err := lock("", &a.mu); err != nil {
		return nil, 0, err
	}
	defer a.mu.Unlock()
	if a.closed.Load() {
		return nil, 0, ErrClosed
	}
	m := a.last()
	if m == nil || m.Closed() || size > m.size-a.used {
		var err error
		if m, err = a.grow(size); err != nil {
			return nil, 0, err
		}
	}
	if size == 0 {
		return m, 0, nil
	}
	at := m.address + driver.CUdeviceptr(a.used)
	a.used = min(a.used+aligned(size), m.size)
	return m, at, nil
}

// last returns the block that may have room, or nil.
func (a *Arena) last() *memory {
	if len(a.blocks) == 0 {
		return nil
	}
	return a.blocks[len(a.blocks)-1]
}

// grow takes another block with room for size bytes. mu is held.
func (a *Arena) grow(size uint64) (*memory, error) {
	s := a.stream
	if !s.Acquire() {
		return nil, ErrClosed
	}
	defer s.Release()
	heap := &s.ctx.shared.heap
	switch ready, err := heap.ready(s.ctx); {
	case err != nil:
		return nil, err
	case !ready:
		return nil, refuse("", ErrNotSupported, "%v has no memory pools", s.ctx.device)
	}
	b := &block{size: max(a.most, size), free: (*block).memFree}
	if err := b.allocateOn(s, s.ctx, heap.pool.raw); err != nil {
		return nil, err
	}
	m := newMemory(b)
	a.blocks, a.used = append(a.blocks, m), 0
	return m, nil
}

// Reset closes all buffers of the arena: using one then returns [ErrClosed]. If only the arena's stream has used the
// memory, it is freed in the order of that stream, and otherwise after all work that uses it. Reset does not wait. If
// the arena had several blocks, its next block is as large as all of them together: an arena that is reset after each
// piece of work soon needs only one block.
//
// Call Reset at the end of the function of a [Stream.Scope], for buffers that the scope alone needs. Source:
// cuMemFreeAsync.
func (a *Arena) Reset() error { return a.free("Arena.Reset", false) }

// Close closes all buffers of the arena, as [Arena.Reset] does, and the arena. Closing again does nothing. Source:
// cuMemFreeAsync.
func (a *Arena) Close() error {
	if a.none() {
		return nil
	}
	return a.free("Arena.Close", true)
}

// free closes the blocks. With closing, the arena takes no more.
func (a *Arena) free(op string, closing bool) error {
	if a.none() {
		return &Error{Op: op, Err: ErrClosed}
	}
	if err := lock(op, &a.mu); err != nil {
		return err
	}
	defer a.mu.Unlock()
	if a.closed.Load() && !closing {
		return &Error{Op: op, Err: ErrClosed}
	}
	if closing {
		a.closed.Store(true)
	}
	var all uint64
	var err error
	for _, m := range a.blocks {
		all += m.size
		err = errors.Join(err, m.close())
	}
	a.most = max(a.most, all)
	clear(a.blocks)
	a.blocks = a.blocks[:0]
	return wrap(op, err)
}

// String describes the arena for messages.
func (a *Arena) String() string {
	if a.none() {
		return neverOpened("Arena")
	}
	return "Arena of " + a.stream.text() + closedText(a.closed.Load())
}
