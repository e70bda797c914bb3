package safe

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Where CUDA is lost, it does not call the host functions that are pending, and says so
// only to whoever calls it. While futures wait for such functions, the witness calls it.
const askWitness = 25 * time.Millisecond

// witness asks CUDA in every context where futures of host functions wait.
func witness() {
	closures.Lock()
	contexts := slices.Collect(maps.Keys(closures.pending))
	closures.Unlock()
	for _, c := range contexts {
		if c.TryRetain() { // else it is going
			c.ask()
			c.Release()
		}
	}
	closures.Lock()
	defer closures.Unlock()
	if closures.witness = len(closures.pending) > 0; closures.witness {
		time.AfterFunc(askWitness, witness)
	}
}

// ask finds out whether CUDA is lost, which every call of it tells, or the context
// is reset.
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

// abandon ends the futures of host functions that CUDA will not call any more: those of
// a context, or all of them. One that it calls nevertheless does nothing.
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

// losing tells that a loss is about to be told.
var losing atomic.Bool

// noticeLoss has the futures of host functions told, by the reaper: whoever finds out
// that CUDA is lost may hold locks.
func noticeLoss(code driver.CUresult) {
	if losing.Swap(true) {
		return
	}
	lifetime.Reaper.Add(func() bool {
		losing.Store(false)
		abandon(code, nil)
		return false
	})
}
