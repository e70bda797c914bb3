package safe

import (
	"errors"
	"math"
	"runtime"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A block is a piece of memory, which buffers are views of. It remembers the
// streams whose work uses it, so that it is given back behind that work, and
// that synchronous copies come behind it.
type block struct {
	lifetime.Handle
	ctx     *contextCore
	address driver.CUdeviceptr // for kernels, 0 where they cannot reach it
	host    unsafe.Pointer     // nil where the host cannot
	size    uint64
	free    func(*block) error // nil where it is somebody else's; the context is current
	home    *streamCore        // whose order the block was allocated in, nil for none
	pool    *poolCore          // that the memory is of, nil where nobody has said
	of      *block             // the memory that a texture or a surface reads: kept, and used with it
	pinner  *runtime.Pinner    // of registered memory of Go's
	owner   any                // of somebody else's memory: kept alive
	graph   bool               // allocated by the launches of a graph
	last    pendingWork        // of the work that a release waits for
	view    *mappedView        // of virtual memory: what of it the block is

	streamUses
}

// known are the uses of the memory, which all windows of an address range share.
func (b *block) known() *streamUses {
	if b.view != nil {
		return &b.view.space.uses
	}
	return &b.streamUses
}

// note notes that work on s, whose mu is held, uses the block and what it reads.
func (b *block) note(s *streamCore) {
	b.known().note(s)
	if b.of != nil {
		b.of.note(s)
	}
}

func (b *block) markers() ([]marker, error) { return b.known().markers(true) }

// use notes that work on s, whose mu is held until that work is enqueued, uses
// the block, and tells whether the block is open. Whoever closes the block locks
// the mu of every user afterwards: either it finds s among them, or use finds
// the block closed.
func (b *block) use(s *streamCore) bool {
	b.note(s)
	return !b.Closed()
}

// allocate makes a block live by calling do with the context current. c is
// marked.
func (b *block) allocate(c *contextCore, do func() error) error {
	b.ctx = c
	if err := c.allocating(do); err != nil {
		return b.outOfMemory(err)
	}
	if err := b.Open(b, b.keeper()); err != nil {
		return errors.Join(err, b.giveBack())
	}
	return nil
}

// allocating is in for what may find the memory out: then what was dropped
// without Close is collected, and do is called again.
func (c *contextCore) allocating(do func() error) error {
	err := c.withCurrent(do)
	for tries := 0; errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY) && tries < 3; tries++ {
		collect()
		err = c.withCurrent(do)
	}
	return err
}

// allocateOn is allocate in the order of a stream, which is marked.
func (b *block) allocateOn(s *streamCore, c *contextCore, do func() error) error {
	b.home = s
	b.users[0].Store(s)
	return b.allocate(c, func() error {
		if err := s.enterAsk(""); err != nil {
			return err
		}
		defer s.leave(nil)
		if s.capturing() {
			return rt.CodeCapturing
		}
		s.used = true
		return do()
	})
}

// keeper is what must stay as long as the block: the context, or the pool or the
// memory that it is of, which have the context.
func (b *block) keeper() *lifetime.Handle {
	switch {
	case b.pool != nil:
		return &b.pool.Handle
	case b.of != nil:
		return &b.of.Handle
	}
	return &b.ctx.Handle
}

// collect has dropped objects found and destroyed, as far as that takes less
// than a second.
func collect() {
	found := make(chan struct{})
	runtime.AddCleanup(new(*int), func(found chan struct{}) { close(found) }, found)
	runtime.GC()
	select {
	case <-found: // cleanups run beside us, and this one with those of others
	case <-time.After(time.Second / 10):
	}
	time.Sleep(lifetime.Retry)
	lifetime.Drain(time.Second)
}

func (b *block) Kind() string { return "block of memory" }

func (b *block) Destroy(wait bool) error {
	if b.free == nil {
		b.owner = nil
		b.view.close()
		return nil
	}
	locks := wait // which are held for short
	if b.home != nil {
		wait = false // whoever closes it goes on at once
		if b.only(b.home) && !b.last.marked {
			if done, err := b.home.freeHere(b); done {
				return err
			}
		}
	}
	for !b.last.over(b.known(), locks) {
		if !wait || !b.last.marked {
			return lifetime.ErrLater
		}
		b.last.wait()
	}
	switch {
	case b.home != nil:
		if done, err := b.freeAside(); done {
			return err
		}
	case !wait:
		return &lifetime.Elsewhere{Queue: &b.ctx.shared.frees}
	}
	return b.giveBack()
}

const closing = "Close" // of a buffer, of whatever kind

// giveBack frees the block, whose uses are over.
func (b *block) giveBack() error {
	err := b.ctx.destroying(closing, func() error { return b.free(b) })
	if b.pinner != nil && err == nil {
		b.pinner.Unpin()
	} else if b.pinner != nil { // the driver still has the addresses
		stranded.keep(*b.pinner)
	}
	return err
}

// freeHere frees a block in the stream's order, unless the stream is over,
// captures, or is in use just now.
func (s *streamCore) freeHere(b *block) (done bool, err error) {
	if !s.mu.TryLock() {
		return false, nil
	}
	defer s.mu.Unlock()
	if s.over || s.capture.Load() != nil {
		return false, nil
	}
	if s.legacy() {
		if !s.ctx.shared.legacy.enter() {
			return false, nil
		}
		defer s.ctx.shared.legacy.leave()
	}
	return b.freed(s.home().FreeAsync(b.address, s.raw))
}

// freeAside frees a block, whose uses are over, on a stream of ours that has nothing
// else to do, if there is one to be had.
func (b *block) freeAside() (done bool, err error) {
	pool := &b.ctx.shared.releases
	stream, err := pool.get(b.ctx)
	if err == rt.CodeReset {
		return true, nil
	}
	if err != nil {
		return false, nil
	}
	defer pool.put(stream, math.MaxInt32)
	return b.freed(b.ctx.home().FreeAsync(b.address, stream))
}

// freed tells what came of a release in the order of a stream. A reset of the
// context has freed it before.
func (b *block) freed(code driver.CUresult) (done bool, err error) {
	switch code {
	case rt.CodeCapturing:
		return false, nil
	case rt.CodeReset:
		return true, nil
	}
	return true, check(closing, code)
}
