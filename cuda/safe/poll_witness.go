package safe

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// If CUDA is lost, the driver never calls the host functions that are pending, and
// reports the loss only to later calls. While futures wait for host functions, the
// witness therefore calls the driver.
const askWitness = 25 * time.Millisecond

// witnesses runs the witness.
var witnesses lifetime.Queue

func callWitness() {
	time.AfterFunc(askWitness, func() { witnesses.Add(witness) })
}

// witness queries CUDA in every context with futures of host functions.
func witness() (again bool) {
	closures.Lock()
	contexts := slices.Collect(maps.Keys(closures.pending))
	closures.Unlock()
	for _, c := range contexts {
		if c.TryRetain() { // else it is being destroyed
			c.ask()
			c.Release()
		}
	}
	closures.Lock()
	defer closures.Unlock()
	if closures.witness = len(closures.pending) > 0; closures.witness {
		callWitness()
	}
	return false
}

// ask queries CUDA, which returns an error if CUDA is lost or if other code has reset the
// context.
func (c *contextCore) ask() {
	e, err := c.shared.events.get(c)
	if err == nil {
		err = check("", c.home().EventQuery(e))
		c.shared.events.put(e)
	}
	if err := wrap("", err); errors.Is(err, ErrReset) {
		abandon(rt.CodeReset, c)
	} // wrap has noticed a loss
}

// abandon completes the futures of host functions that CUDA will never call, of one
// context or of all. If CUDA calls one nevertheless, the call does nothing.
func abandon(code driver.CUresult, of *contextCore) {
	closures.Lock()
	var ended []*closure
	for token, c := range closures.of {
		if c.ctx != nil && (of == nil || c.ctx == of) {
			remove(token, c)
			ended = append(ended, c)
		}
	}
	closures.Unlock()
	for _, c := range ended {
		c.future.complete(struct{}{}, failed("Stream.LaunchHostFunc", code))
	}
}

func init() { onLoss = noticeLoss }

// losing is set while a report of a loss is queued.
var losing atomic.Bool

// noticeLoss fails the futures of host functions. The reaper does it, because the caller
// may hold locks.
func noticeLoss(code driver.CUresult) {
	if losing.Swap(true) {
		return
	}
	lifetime.Reaper.Add(func() bool {
		failAll(code)
		return false
	})
}

// failAll fails the futures of host functions. A loss that is noticed from now on is reported again, as it may
// concern new ones.
func failAll(code driver.CUresult) {
	losing.Store(false)
	admit.Between()
	abandon(code, nil)
}
