package collective

import (
	"context"
	"errors"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// begin begins the end of the communicator, in a goroutine: NCCL may block, and one
// communicator must not wait for another.
func (c *core) begin() { c.ending.Do(func() { go c.end() }) }

// abort ends the communicator because of err.
func (c *core) abort(err error) {
	c.leave(err)
	c.begin()
}

// end has NCCL release the communicator: in order, or at once if it has failed.
func (c *core) end() {
	err := c.finalize()
	c.tellReset(err)
	if err != nil && c.err() == nil {
		c.leave(&abortError{err})
		lifetime.Report(named("Comm.Close", err))
	}
	release, call := nccl.NcclCommDestroy, c.whole
	if c.err() != nil {
		c.uses.Revoke()
		release = nccl.NcclCommAbort
	}
	if captured.Load() {
		call = c.afterCaptures
	}
	c.mu.Lock()
	from := c.from
	c.mu.Unlock()
	if from != nil { // NCCL makes a communicator until then, even if the split fails
		<-from.gone
	}
	err = call(func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ready = false
		if *c.raw == 0 {
			return nil
		}
		defer func() { *c.raw = 0 }()
		return release(*c.raw)
	})
	c.tellReset(err)
	c.forgetAll()
	if err != nil && !errors.Is(err, nccl.NcclInProgress) {
		lifetime.Report(named("Comm.Close", err))
	}
	c.pin.Unpin()
	c.leave(safe.ErrClosed)
	c.session.remove(c)
	unwatch(c)
	if err := c.x.Close(); err != nil {
		lifetime.Report(named("Comm.Close", err))
	}
	close(c.gone)
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
// beginning and executables from being destroyed meanwhile: NCCL waits for the graphs with
// operations of a communicator that was aborted, to which no capture can add any more.
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

// desertion is how long a communicator waits for the end of its finalization after all
// other ranks have gone.
const desertion = 10 * time.Second

// finalize completes the communicator's operations. It returns early if the communicator
// fails.
func (c *core) finalize() error {
	if c.err() != nil {
		return nil
	}
	if c.session.only(c) {
		c.session.leave()
	}
	step := func(f func() error) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err() != nil {
			return nil
		}
		return f()
	}
	err := c.whole(func() error {
		return step(func() error {
			c.deregisterAll()
			return nccl.NcclCommFinalize(*c.raw)
		})
	})
	var late <-chan time.Time
	var deserted <-chan struct{}
	if c.session.peers != nil {
		deserted = c.session.peers.deserted()
	}
	for errors.Is(err, nccl.NcclInProgress) {
		select {
		case <-c.life.Done():
			return nil
		case <-late:
			return context.DeadlineExceeded
		case <-deserted:
			deserted, late = nil, time.After(desertion)
		case <-time.After(time.Millisecond):
		}
		err = step(c.ask)
	}
	return err
}
