package collective

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// begin begins the end of the communicator, in a goroutine: NCCL may block, and one
// communicator must not wait for another.
func (c *core) begin() { c.ending.Do(func() { go c.end() }) }

// end has NCCL release the communicator: in order, or at once if it has failed.
func (c *core) end() {
	runtime.LockOSThread() // which may be left in a group of NCCL, and ends with this goroutine
	err := c.complete()
	c.tellReset(err)
	if err != nil && c.err() == nil {
		c.leave(&abortError{err})
		lifetime.Report(named("Comm.Close", err))
	}
	if c.err() != nil {
		err = c.kill()
	} else {
		err = c.destroy()
	}
	c.tellReset(err)
	if err != nil {
		lifetime.Report(named("Comm.Close", err))
	}
	c.pin.Unpin()
	c.leave(safe.ErrClosed)
	c.forgetAll(err == nil)
	c.session.remove(c)
	unwatch(c)
	if err := c.x.Close(); err != nil {
		lifetime.Report(named("Comm.Close", err))
	}
	c.over()
}

// destroy has NCCL release the communicator in order. NCCL may wait for other processes of this machine then, and
// nothing ends that: an abort would use what NCCL frees meanwhile. If the communicator fails, nobody waits for NCCL any more.
func (c *core) destroy() error {
	defer context.AfterFunc(c.life, c.over)()
	return c.release(func() error { return nccl.NcclCommDestroy(*c.raw) })
}

// release calls f, which has NCCL release the communicator, while no call is in flight. NCCL may wait for other
// ranks of this machine, and for graphs.
func (c *core) release(f func() error) error {
	return c.afterCaptures(func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ready.Store(false)
		if *c.raw == 0 {
			return nil
		}
		defer func() { *c.raw = 0 }()
		return f()
	})
}

// kill aborts the communicator in two steps. The first one makes all calls return that are in
// NCCL, on their way there or wait for other ranks, and ends the work on the GPU. The second
// one releases what those calls use, so it waits for them, and for captures: see whole. The thread is locked.
func (c *core) kill() error {
	if !defers() {
		c.uses.Revoke() // for NCCL waits for the executables
		if c.idle() {
			if err := c.whole(func() error { return nil }); err != nil {
				return err
			}
		}
	}
	err := c.x.WithCurrent(func() error {
		raw := c.handle()
		if raw == 0 {
			return nil
		}
		if err := nccl.NcclGroupStart(); err != nil {
			return err
		}
		return safe.WithCaptureMode(safe.CaptureRelaxed, func() error { return nccl.NcclCommAbort(raw) }) // which may release it
	})
	c.uses.Revoke() // not before, as it may wait a second for a call in flight
	if err != nil {
		return explained(err)
	}
	return c.release(nccl.NcclGroupEnd)
}

// defers returns whether NCCL delays the release of an aborted communicator to the end of the
// group: from 2.22 on. Before, it releases in ncclCommAbort, some 500 ms later than it makes
// calls return.
var defers = sync.OnceValue(func() bool {
	var version int32
	return nccl.NcclGetVersion(&version) == nil && version >= 22200
})

// idle returns whether no call is in flight.
func (c *core) idle() bool {
	if !c.mu.TryLock() {
		return false
	}
	c.mu.Unlock()
	return true
}

// handle returns what NCCL has made, or 0 if it makes nothing any more. A call of the communicator may still be in NCCL.
// While NCCL splits, handle waits: a split ends with the communicator that is split.
func (c *core) handle() nccl.NcclComm_t {
	for {
		over := c.idle()
		raw := atomic.LoadUintptr((*uintptr)(c.raw))
		if over || raw != 0 && (!c.child || c.ready.Load()) {
			return nccl.NcclComm_t(raw)
		}
		time.Sleep(time.Millisecond)
	}
}

// tellReset fails the session if err is that of a reset by other code: the other ranks would wait for this
// one. NCCL is not called any more, as it would use what the reset has destroyed.
func (c *core) tellReset(err error) {
	if errors.Is(err, safe.ErrReset) {
		c.session.fail(err)
	}
}

// whole calls f while no stream of the device captures: NCCL synchronizes its own streams,
// which CUDA does not survive beside a capture that they are part of.
func (c *core) whole(f func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var result error
		err := c.x.WithoutCaptures(func() error {
			result = f()
			return nil
		})
		if !errors.Is(err, safe.ErrCapturing) {
			return errors.Join(err, explained(result))
		}
		time.Sleep(pause)
	}
}

// afterCaptures calls f once no stream of the device captures. It does not keep captures from
// beginning and executables from being destroyed meanwhile: NCCL may wait for both, and for other ranks, and no capture
// can add operations of the communicator any more.
func (c *core) afterCaptures(f func() error) error {
	if err := c.whole(func() error { return nil }); err != nil {
		return err
	}
	var result error
	err := c.x.WithCurrent(func() error {
		return safe.WithCaptureMode(safe.CaptureRelaxed, func() error {
			result = f()
			return nil
		})
	})
	return errors.Join(err, explained(result))
}

// complete completes the communicator's operations, and with the only communicator left of a session waits until the other
// ranks do so: NCCL waits for those of this machine when it destroys the communicator, and that cannot be aborted. It
// returns early if the communicator fails.
func (c *core) complete() error {
	if c.err() != nil {
		return nil
	}
	var deserted <-chan struct{}
	if c.session.peers != nil {
		deserted = c.session.peers.deserted()
	}
	only := c.session.ends(c)
	done := make(chan error, 1)
	go func() { done <- c.finalize() }()
	select {
	case err := <-done:
		if err != nil || !only || deserted == nil {
			return err
		}
	case <-c.life.Done():
		return nil
	}
	select {
	case <-c.life.Done():
	case <-deserted:
	}
	return nil
}

// finalize has NCCL complete the communicator's operations. It holds up no captures meanwhile: none can have
// operations of the communicator any more.
func (c *core) finalize() error {
	runtime.LockOSThread() // as end does
	step := func(f func() error) func() error {
		return func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.err() != nil {
				return nil
			}
			return f()
		}
	}
	err := c.whole(step(func() error {
		c.deregisterAll()
		return nil
	}))
	if err != nil {
		return err
	}
	return c.afterCaptures(step(func() error { return nccl.NcclCommFinalize(*c.raw) }))
}
