package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// ID is unique to the context in this process; a context that was reset has
// another. It needs a driver of CUDA 12.0. Source: cuCtxGetId.
func (x *Context) ID() (uint64, error) {
	var id uint64
	err := x.do("Context.ID", func() error { return driver.CuCtxGetId(x.core.raw, &id) })
	return id, err
}

// Flags are those the context was made with. Source: cuCtxGetFlags.
func (x *Context) Flags() (driver.CUctx_flags, error) {
	var flags uint32
	err := x.do("Context.Flags", func() error { return driver.CuCtxGetFlags(&flags) })
	return driver.CUctx_flags(flags), err
}

// Limit is one of the context's limits, such as driver.CU_LIMIT_STACK_SIZE.
// Source: cuCtxGetLimit.
func (x *Context) Limit(limit driver.CUlimit) (uint64, error) {
	var value uint64
	err := x.do("Context.Limit", func() error { return driver.CuCtxGetLimit(&value, limit) })
	return value, err
}

// SetLimit asks for a limit. The driver may grant another value, which
// [Context.Limit] tells. Source: cuCtxSetLimit.
func (x *Context) SetLimit(limit driver.CUlimit, value uint64) error {
	return x.do("Context.SetLimit", func() error { return driver.CuCtxSetLimit(limit, value) })
}

// MemoryInfo is how much of the device's memory is free, and how much it has,
// in bytes. Other processes change the first at any time. Source: cuMemGetInfo.
func (x *Context) MemoryInfo() (free, total uint64, err error) {
	err = x.do("Context.MemoryInfo", func() error { return driver.CuMemGetInfo(&free, &total) })
	return free, total, err
}

// StreamPriorityRange is the range of [StreamOptions].Priority: least is the
// default, 0, and greatest, the most urgent, is the smaller number.
// Source: cuCtxGetStreamPriorityRange.
func (x *Context) StreamPriorityRange() (least, greatest int, err error) {
	var l, g int32
	err = x.do("Context.StreamPriorityRange", func() error { return driver.CuCtxGetStreamPriorityRange(&l, &g) })
	return int(l), int(g), err
}

// Synchronize waits until the context's work is done, that of every stream of
// it. It blocks the thread.
//
// CUDA destroys every capture in the context at this call, so that it is
// refused with [ErrCapturing] while one of the streams made here captures.
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
		for _, c := range s.live() { // captures that this package did not begin
			if c.Acquire() {
				captures := c.capturing()
				c.Release()
				if captures {
					return refuse(op, ErrCapturing, "another stream of the context captures")
				}
			}
		}
		return driver.CuCtxSynchronize()
	})
}

// queueOf is the queue of a stream: that of a Stream which is the same one of the
// driver's, if there is one.
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

// live lists the streams of the context.
func (s *contextState) live() []*streamCore {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := make([]*streamCore, 0, len(s.streams))
	for c := range s.streams {
		streams = append(streams, c)
	}
	return streams
}

// EnablePeerAccess lets kernels of x reach the memory of peer's device, one
// way. It is no error if they may already. [Device.CanAccessPeer] tells whether
// it is possible. Source: cuCtxEnablePeerAccess.
func (x *Context) EnablePeerAccess(peer *Context) error {
	return x.peerAccess("Context.EnablePeerAccess", peer, true, driver.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
		func(raw driver.CUcontext) error { return driver.CuCtxEnablePeerAccess(raw, 0) })
}

// DisablePeerAccess takes back what [Context.EnablePeerAccess] allowed. It is
// no error if nothing was. Source: cuCtxDisablePeerAccess.
func (x *Context) DisablePeerAccess(peer *Context) error {
	return x.peerAccess("Context.DisablePeerAccess", peer, false, driver.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, driver.CuCtxDisablePeerAccess)
}

// peerAccess makes a change, which may have been made already.
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

// reaches tells whether kernels of c may use memory of other.
func (c *contextCore) reaches(other *contextCore) bool {
	if c.same(other) {
		return true
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	_, ok := c.shared.peers[other.shared]
	return ok
}
