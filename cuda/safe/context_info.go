package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
)

// Limit returns one of the context's limits, such as driver.CU_LIMIT_STACK_SIZE in bytes. Source: cuCtxGetLimit.
func (x *Context) Limit(limit driver.CUlimit) (uint64, error) {
	var value uint64
	err := x.do("Context.Limit", func() error { return driver.CuCtxGetLimit(&value, limit) })
	return value, err
}

// SetLimit requests a limit, such as driver.CU_LIMIT_STACK_SIZE in bytes. The driver may choose another value: see
// [Context.Limit]. It returns driver.CUDA_ERROR_UNSUPPORTED_LIMIT if the device has no such limit. Source:
// cuCtxSetLimit.
func (x *Context) SetLimit(limit driver.CUlimit, value uint64) error {
	return reclaiming(func() error {
		return x.do("Context.SetLimit", func() error { return driver.CuCtxSetLimit(limit, value) })
	})
}

// MemoryInfo returns how much of the device's memory is free, and its total size, in
// bytes. Other processes may allocate and free memory at any time. Source: cuMemGetInfo.
func (x *Context) MemoryInfo() (free, total uint64, err error) {
	err = x.do("Context.MemoryInfo", func() error { return driver.CuMemGetInfo(&free, &total) })
	return free, total, err
}

// EnablePeerAccess lets kernels of x access the memory of peer's device, but not the
// other way round. It succeeds if access is enabled already. [Device.CanAccessPeer]
// returns whether it is possible. It waits until calls of this package that copy between
// devices have returned, as CUDA would use memory that is not mapped yet. Source:
// cuCtxEnablePeerAccess, cuMemPoolSetAccess.
func (x *Context) EnablePeerAccess(peer *Context) error {
	return reclaiming(func() error { return x.withPeer("Context.EnablePeerAccess", peer, enablePeer) })
}

// enablePeer enables access of s, whose context is current, to the memory of p.
func enablePeer(s *contextState, p *contextCore) error {
	s.setPeer(p.shared, false)
	// First the heap: from cuCtxEnablePeerAccess on, CUDA may copy between the two directly.
	err := p.shared.shareHeap()
	if err == nil {
		err = peerCopies.Exclusive(func() error { return driver.CuCtxEnablePeerAccess(p.raw, 0) })
	}
	if err != nil && err != driver.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
		if s.forgetPeer(p.shared, false) {
			err = errors.Join(err, p.shared.shareHeap())
		}
		return err
	}
	s.setPeer(p.shared, true)
	return nil
}

// DisablePeerAccess undoes [Context.EnablePeerAccess]. It succeeds if access is not
// enabled. Wait first for kernels and copies that use memory of both devices: they fault
// without the access. Source: cuCtxDisablePeerAccess, cuMemPoolSetAccess.
func (x *Context) DisablePeerAccess(peer *Context) error {
	return x.withPeer("Context.DisablePeerAccess", peer, func(s *contextState, p *contextCore) error {
		err := peerCopies.Exclusive(func() error { return driver.CuCtxDisablePeerAccess(p.raw) })
		if err != nil && err != driver.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED {
			return err
		}
		s.forgetPeer(p.shared, true)
		return p.shared.shareHeap()
	})
}

// withPeer calls f with x current. Other changes of access wait for f.
func (x *Context) withPeer(op string, peer *Context, f func(s *contextState, p *contextCore) error) error {
	p, err := peer.acquire(op)
	if err != nil {
		return err
	}
	defer p.Release()
	if err := lock(op, &peerChanges); err != nil {
		return err
	}
	defer peerChanges.Unlock()
	return wrap(op, p.withCurrent(func() error {
		return x.do(op, func() error { return f(x.core.shared, p) })
	}))
}

// peerChanges is held while a context gets or loses access to memory of another, and the heap with it.
var peerChanges admit.Leaf

// setPeer notes that the heap of other is shared with s, and if enabled is set that kernels
// of s may access memory of other.
func (s *contextState) setPeer(other *contextState, enabled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[other] = s.peers[other] || enabled
}

// forgetPeer notes that the heap of other is no longer shared with s. Unless enabled is set, it returns false and
// notes nothing if kernels of s may access memory of other.
func (s *contextState) forgetPeer(other *contextState, enabled bool) (forgotten bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[other] && !enabled {
		return false
	}
	delete(s.peers, other)
	return true
}

// Context returns the context of the stream, or nil if s is nil. It is usable as long as the stream is open, even if
// the [Context] that the stream was made in has been closed. Its own Close does nothing. Compare contexts by
// [Context.Equal].
func (s *Stream) Context() *Context {
	if s == nil || s.core == nil {
		return nil
	}
	return s.core.ctx.view()
}

// Context returns the context of the event, as [Stream.Context] does.
func (e *Event) Context() *Context {
	if e == nil || e.core == nil {
		return nil
	}
	return e.core.ctx.view()
}

// Context returns the context of the module, as [Stream.Context] does.
func (m *Module) Context() *Context {
	if m == nil || m.core == nil {
		return nil
	}
	return m.core.ctx.view()
}

// Context returns the context of the graph, as [Stream.Context] does.
func (g *Graph) Context() *Context {
	if g == nil || g.core == nil {
		return nil
	}
	return g.core.ctx.view()
}

// Context returns the context of the executable, as [Stream.Context] does.
func (e *GraphExec) Context() *Context {
	if e == nil || e.core == nil {
		return nil
	}
	return e.core.ctx.view()
}

// Context returns the context of the green context, as [Stream.Context] does.
func (g *GreenContext) Context() *Context {
	if g == nil || g.core == nil {
		return nil
	}
	return g.core.ctx.view()
}

// Context returns the context of the kernel's module, as [Stream.Context] does.
func (k *Kernel) Context() *Context {
	if k == nil || k.core == nil {
		return nil
	}
	return k.core.ctx.view()
}

// Context returns the context of the buffer, as [Stream.Context] does.
func (b *Buffer[T]) Context() *Context {
	if b == nil {
		return nil
	}
	return b.memory.context()
}

// Context returns the context of the pinned memory, as [Stream.Context] does.
func (h *Pinned[T]) Context() *Context {
	if h == nil {
		return nil
	}
	return h.memory.context()
}
