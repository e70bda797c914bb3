package safe

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A graphAllocation is memory that the launches of a graph allocate.
type graphAllocation struct {
	address *graphAddress
	copying atomic.Int32             // synchronous copies in flight, for which FreeAsync waits
	freed   atomic.Bool              // the capture that allocates it frees it: it is never present
	freer   atomic.Pointer[retained] // of the node that frees it, perhaps in another graph, or nil
	home    *streamCore              // the stream that captured the allocation, or nil
	capture *capturing               // in which it did, or nil
}

// A graphAddress is an address at which launches allocate memory. The allocations of a graph and
// of its recaptures have the same addresses.
type graphAddress struct {
	present atomic.Pointer[graphAllocation] // a launch has allocated it, and nothing has freed it since; or the claim of FreeAsync
	owners  atomic.Int32                    // blocks; the last one frees memory that is still allocated
	number  uint64                          // in order of creation, in which those of an executable are locked

	mu   admit.Leaf // held during launches, and during the release by FreeAsync
	free marker     // follows the release, until a launch has waited for it
}

var graphAddresses atomic.Uint64

func newGraphAllocation() *graphAllocation {
	a := &graphAllocation{address: &graphAddress{number: graphAddresses.Add(1)}}
	a.address.owners.Store(1)
	return a
}

// at gives the allocation the address of an earlier one.
func (a *graphAllocation) at(p *graphAddress) {
	p.owners.Add(1)
	a.address = p
}

func (a *graphAllocation) present() bool { return a.address.present.Load() == a }

// leave returns whether the block of the allocation was the last one that has its address.
func (a *graphAllocation) leave() bool {
	p := a.address
	if p.owners.Add(-1) > 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetFree()
	return true
}

// forgetFree forgets the release. mu is held.
func (p *graphAddress) forgetFree() {
	if p.free.stream != nil {
		p.free.end()
	}
	p.free = marker{}
}

// afterFree makes s, which is locked, wait for the release. mu is held. It returns
// driver.CUDA_ERROR_NOT_READY while another call uses the closed stream of the release.
func (p *graphAddress) afterFree(s *streamCore) driver.CUresult {
	if p.free.stream == nil {
		return 0
	}
	return p.free.orders(s)
}

// appear notes that a launch has allocated the memory, and vanish that it is freed.
func (a *graphAllocation) appear() { a.address.present.Store(a) }
func (a *graphAllocation) vanish() { a.address.present.Store(nil) }

// allocated returns whether work outside captures may use the block, or the block that it
// accesses.
func (b *block) allocated() bool {
	if b.of != nil {
		return b.of.allocated()
	}
	return b.graph == nil || b.graph.present()
}

// left returns the memory that the capture which allocates it does not free.
func left(allocs []*block) []*block {
	return slices.DeleteFunc(allocs, func(b *block) bool { return b.graph.freed.Load() })
}

// capturedSince returns whether a call has failed with err because a capture has begun since captures was
// read: it may have ended, too.
func (s *streamCore) capturedSince(captures uint32, err error) bool {
	return errors.Is(err, ErrCapturing) && s.captures.Load() != captures
}

// allocateCaptured adds a node that allocates the block to the capture of the stream, which
// is acquired. It returns false if the stream is in no capture that this package began.
func (b *block) allocateCaptured(s *streamCore) (captured bool, err error) {
	if s.capture.Load() == nil {
		return false, nil
	}
	a := admission{stream: s}
	if err := a.admit(); err != nil {
		return false, err
	}
	defer a.leave(true)
	c := a.capture
	if c == nil || b.size == 0 {
		return false, nil
	}
	b.ctx, b.free = s.ctx, (*block).graphFree
	b.graph = newGraphAllocation()
	b.graph.home, b.graph.capture = s, c
	if err := b.Open(b, &s.ctx.Handle); err != nil {
		return false, err
	}
	m := rt.Alloc{Home: s.home(), Stream: s.raw, Size: b.size, Captured: 1}
	if code := m.Do(); code != 0 {
		b.CloseLater()
		return false, code
	}
	b.address = m.Address
	if p := c.addressAt(b.address); p != nil {
		b.graph.at(p)
	}
	b.note(s)
	c.retains(&b.Handle)
	c.graph.kept.captured.allocates(b)
	return true, nil
}

// addressAt returns the state of the address at which the recaptured graph allocates memory, or
// nil. The capture is locked.
func (c *capturing) addressAt(address driver.CUdeviceptr) *graphAddress {
	if c.before == nil {
		return nil
	}
	allocs, freed := c.before.memory()
	for _, b := range left(allocs) { // several may have had the address, one after another
		if b.address == address && !slices.Contains(freed, b) {
			return b.graph.address
		}
	}
	return nil
}

// graphFree frees what the last launch has left allocated: destroying a graph and its
// executables does not.
func (b *block) graphFree() error {
	if b.graph.address.present.Swap(nil) == nil {
		return nil
	}
	return b.memFree()
}

// freeCaptured adds a node that frees the block to the capture of the stream, which is
// acquired. It returns false if the stream is in no capture that this package began.
func (b *block) freeCaptured(op string, s *streamCore) (captured bool, err error) {
	a := admission{op: op, stream: s}
	if err := a.admit(); err != nil {
		return true, err
	}
	defer a.leave(true)
	c := a.capture
	if c == nil {
		return false, nil
	}
	if b.graph.freed.Load() || c.freedBefore(b) {
		return true, refuse(op, ErrClosed, "a node of a graph frees the memory already")
	}
	return true, wrap(op, c.free(b, s))
}

// freedBefore returns whether a node frees the block, other than one that the capture
// replaces. The capture is locked.
func (c *capturing) freedBefore(b *block) bool {
	k := b.graph.freer.Load()
	return k != nil && (c.before == nil || !c.before.has(k))
}

// hasFreed returns whether a node of the capture has freed the memory of the block. The capture is locked.
func (c *capturing) hasFreed(b *block) bool {
	for ; b != nil; b = b.of {
		if b.graph != nil && (b.graph.capture == c && b.graph.freed.Load() || slices.Contains(c.frees, b)) {
			return true
		}
	}
	return false
}

// freeInCapture frees the block in the capture that allocates it, if that is under way.
func (b *block) freeInCapture() error {
	if b.graph == nil || b.graph.home == nil || b.Closed() || b.graph.capture.ended.Load() {
		return nil
	}
	s := b.graph.home
	a := admission{op: closing, stream: s}
	if err := a.admit(); err != nil {
		return err
	}
	defer a.leave(true)
	c := a.capture
	if c != b.graph.capture || b.graph.freed.Load() || c.freedBefore(b) {
		return nil
	}
	return wrap(closing, c.free(b, s))
}

// notFreed returns an error if a node of the capture has freed memory that k retains. The capture is locked.
func (c *capturing) notFreed(op string, k *retained) (err error) {
	k.eachBlock(func(b *block) {
		if err == nil && c.hasFreed(b) {
			err = b.unusable(op)
		}
	})
	return err
}

// free frees the block in the order of s, after the work of the capture's other streams that use it, or may use it
// in a node that they have added. The capture is locked.
func (c *capturing) free(b *block, s *streamCore) error {
	users := append(b.streams(), c.adding...)
	for i, user := range users {
		if user.queue == s.queue || user.capture.Load() != c || slices.Contains(users[:i], user) {
			continue
		}
		info, err := user.captured(c.graph)
		if err == nil {
			err = s.setDependencies(info.raw(), nil, driver.CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
		}
		if err != nil {
			return err
		}
	}
	err := s.ctx.withCurrent(func() error { return driver.CuMemFreeAsync(b.address, s.raw) })
	switch {
	case err != nil:
		return err
	case c == b.graph.capture:
		b.graph.freed.Store(true)
	default:
		c.graph.kept.captured.frees(b)
		c.frees = append(c.frees, b)
	}
	c.retains(&b.Handle)
	return nil
}

// discard notes that the capture's graph will never be launched. The capture is over.
func (c *capturing) discard() {
	for _, b := range c.frees {
		b.graph.freer.Store(nil)
	}
}

// oneExecutable explains why CUDA refuses to instantiate a graph that allocates memory.
func (g *graphCore) oneExecutable(op string, err error) error {
	if allocs, _ := g.kept.memory(); !errors.Is(err, driver.CUDA_ERROR_NOT_SUPPORTED) || len(allocs) == 0 {
		return err
	}
	return refuse(op, driver.CUDA_ERROR_NOT_SUPPORTED, "a graph that allocates memory can have one executable at a time; close that first")
}
