package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// ID returns a number that identifies the context in this process. It changes when the
// context is reset. It returns [ErrNotSupported] with a driver before CUDA 12.0. Source:
// cuCtxGetId.
func (x *Context) ID() (uint64, error) {
	var id uint64
	err := x.do("Context.ID", func() error { return driver.CuCtxGetId(x.core.raw, &id) })
	return id, err
}

// Flags returns the flags with which the context was created. Source: cuCtxGetFlags.
func (x *Context) Flags() (driver.CUctx_flags, error) {
	var flags uint32
	err := x.do("Context.Flags", func() error { return driver.CuCtxGetFlags(&flags) })
	return driver.CUctx_flags(flags), err
}

// Limit returns one of the context's limits, such as driver.CU_LIMIT_STACK_SIZE. Source:
// cuCtxGetLimit.
func (x *Context) Limit(limit driver.CUlimit) (uint64, error) {
	var value uint64
	err := x.do("Context.Limit", func() error { return driver.CuCtxGetLimit(&value, limit) })
	return value, err
}

// SetLimit requests a limit. The driver may choose another value: see [Context.Limit].
// Source: cuCtxSetLimit.
func (x *Context) SetLimit(limit driver.CUlimit, value uint64) error {
	return x.do("Context.SetLimit", func() error { return driver.CuCtxSetLimit(limit, value) })
}

// MemoryInfo returns how much of the device's memory is free, and its total size, in
// bytes. Other processes may allocate and free memory at any time. Source: cuMemGetInfo.
func (x *Context) MemoryInfo() (free, total uint64, err error) {
	err = x.do("Context.MemoryInfo", func() error { return driver.CuMemGetInfo(&free, &total) })
	return free, total, err
}

// StreamPriorityRange returns the range of [StreamOptions].Priority. least is 0, the
// default. greatest, the most urgent priority, is the lower number. Source:
// cuCtxGetStreamPriorityRange.
func (x *Context) StreamPriorityRange() (least, greatest int, err error) {
	var l, g int32
	err = x.do("Context.StreamPriorityRange", func() error { return driver.CuCtxGetStreamPriorityRange(&l, &g) })
	return int(l), int(g), err
}

// Synchronize waits until all work of the context, on every stream, has completed. It
// blocks the thread.
//
// CUDA would invalidate every capture in the context. Synchronize therefore returns
// [ErrCapturing] while a stream of the context that this package knows is capturing.
// Source: cuCtxSynchronize.
func (x *Context) Synchronize() error {
	const op = "Context.Synchronize"
	return x.do(op, func() error {
		s := x.core.shared
		if err := enterLong(&s.whole, &synchronizing); err != nil {
			return err
		}
		defer s.whole.leaveLong()
		defer synchronizing.leaveLong()
		for _, c := range s.live() { // some may be in captures that this package did not begin
			if c.Acquire() {
				captures := c.capturing()
				c.Release()
				if captures {
					return refuse(op, ErrCapturing, "another stream of the context is capturing")
				}
			}
		}
		return driver.CuCtxSynchronize()
	})
}

// queueOf returns the queue of a Stream for the same CUDA stream if there is one, or else
// a new queue.
func (s *contextState) queueOf(raw driver.CUstream) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.streams {
		if c.raw == raw {
			return c.queue
		}
	}
	return newQueue()
}

// live returns the streams of the context.
func (s *contextState) live() []*streamCore {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := make([]*streamCore, 0, len(s.streams))
	for c := range s.streams {
		streams = append(streams, c)
	}
	return streams
}

// EnablePeerAccess lets kernels of x access the memory of peer's device, but not the
// other way round. It succeeds if access is enabled already. [Device.CanAccessPeer]
// returns whether it is possible. Source: cuCtxEnablePeerAccess.
func (x *Context) EnablePeerAccess(peer *Context) error {
	return x.peerAccess("Context.EnablePeerAccess", peer, true, driver.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
		func(raw driver.CUcontext) error { return driver.CuCtxEnablePeerAccess(raw, 0) })
}

// DisablePeerAccess undoes [Context.EnablePeerAccess]. It succeeds if access is not
// enabled. Source: cuCtxDisablePeerAccess.
func (x *Context) DisablePeerAccess(peer *Context) error {
	return x.peerAccess("Context.DisablePeerAccess", peer, false, driver.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, driver.CuCtxDisablePeerAccess)
}

// peerAccess calls change and records the result. The error already means success.
func (x *Context) peerAccess(op string, peer *Context, allowed bool, already driver.CUresult, change func(driver.CUcontext) error) error {
	p, err := peer.acquire(op)
	if err != nil {
		return err
	}
	defer p.Release()
	return x.do(op, func() error {
		if err := change(p.raw); err != nil && err != already {
			return err
		}
		s := x.core.shared
		s.mu.Lock()
		defer s.mu.Unlock()
		if allowed {
			s.peers[p.shared] = struct{}{}
		} else {
			delete(s.peers, p.shared)
		}
		return nil
	})
}

// reaches returns whether kernels of c may access memory of other.
func (c *contextCore) reaches(other *contextCore) bool {
	if c.same(other) {
		return true
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	_, ok := c.shared.peers[other.shared]
	return ok
}
