package safe

import (
	"errors"
	"runtime"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A block is a piece of memory, which buffers are views of. It remembers the
// streams whose work uses it, so that it is given back behind that work, and
// that synchronous copies come behind it.
type block struct {
	handle
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
	pending []point            // the work that a release waits for, once marked
	marked  bool
	window  *window // of virtual memory: what of it the block is

	uses
}

// known are the uses of the memory, which all windows of an address range share.
func (b *block) known() *uses {
	if b.window != nil {
		return &b.window.space.uses
	}
	return &b.uses
}

// note notes that work on s, whose mu is held, uses the block and what it reads.
func (b *block) note(s *streamCore) {
	b.known().note(s)
	if b.of != nil {
		b.of.note(s)
	}
}

func (b *block) points() ([]point, error) { return b.known().points() }

// use notes that work on s, whose mu is held until that work is enqueued, uses
// the block, and tells whether the block is open. Whoever closes the block locks
// the mu of every user afterwards: either it finds s among them, or use finds
// the block closed.
func (b *block) use(s *streamCore) bool {
	b.note(s)
	return !b.closed()
}

// allocate makes a block live by calling do with the context current. c is
// marked.
func (b *block) allocate(c *contextCore, do func() error) error {
	b.ctx = c
	if err := c.allocating(do); err != nil {
		return err
	}
	if err := b.open(b, b.keeper()); err != nil {
		return errors.Join(err, b.giveBack())
	}
	return nil
}

// allocating is in for what may find the memory out: then what was dropped
// without Close is collected, and do is called again.
func (c *contextCore) allocating(do func() error) error {
	err := c.in(do)
	for tries := 0; errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY) && tries < 3; tries++ {
		collect()
		err = c.in(do)
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
func (b *block) keeper() *handle {
	switch {
	case b.pool != nil:
		return &b.pool.handle
	case b.of != nil:
		return &b.of.handle
	}
	return &b.ctx.handle
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
	time.Sleep(retry)
	reaper.drain(time.Second)
}

func (b *block) kind() string { return "block of memory" }

func (b *block) destroy(wait bool) error {
	if b.free == nil {
		b.owner = nil
		b.window.close()
		return nil
	}
	if b.home != nil && b.only(b.home) {
		if done, err := b.home.freeHere(b); done {
			return err
		}
	}
	if !b.marked {
		points, err := b.points()
		if err == rt.CodeCapturing {
			return errLater
		}
		if err != nil { // the process is lost: nothing runs any more
			return errors.Join(wrap(closing, err), b.giveBack())
		}
		b.pending, b.marked = points, true
	}
	if b.home != nil {
		if done, err := b.freeBehind(); done {
			return err
		}
	}
	for len(b.pending) > 0 {
		p := b.pending[0]
		if p.done() == driver.CUDA_ERROR_NOT_READY { // an error shows in giveBack as well
			if !wait {
				return errLater
			}
			p.wait()
		}
		p.end()
		b.pending = b.pending[1:]
	}
	return b.giveBack()
}

const closing = "Close" // of a buffer, of whatever kind

// giveBack frees the block, whose uses are over.
func (b *block) giveBack() error {
	err := b.ctx.destroying(closing, func() error { return b.free(b) })
	if b.pinner != nil {
		b.pinner.Unpin()
	}
	return err
}

// freeHere frees a block in the stream's order, unless the stream is over or
// captures.
func (s *streamCore) freeHere(b *block) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.capturing() {
		return false, nil
	}
	return true, b.freed(rt.FreeAsync(s.set, b.address, s.raw))
}

// freeBehind frees a block in the order of a stream of ours that waits for all
// users, if there is one to be had.
func (b *block) freeBehind() (done bool, err error) {
	pool := &b.ctx.shared.releases
	stream, err := pool.get(b.ctx)
	if err != nil {
		return false, nil
	}
	defer pool.put(stream)
	for _, p := range b.pending {
		if p.orders(b.ctx.bare(), stream) != 0 {
			p.wait()
		}
	}
	endAll(b.pending)
	b.pending = nil
	return true, b.freed(rt.FreeAsync(b.ctx.bare(), b.address, stream))
}

// freed is the error of a release, unless a reset of the context was first.
func (b *block) freed(code driver.CUresult) error {
	if code == 0 {
		return nil
	}
	return b.ctx.destroying(closing, func() error { return code })
}
