package collective

import (
	"fmt"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// watching has all communicators of the process that NCCL has not released. One goroutine
// asks NCCL for their errors. It runs only while there are communicators.
var watching struct {
	sync.Mutex // a leaf: guards comms
	comms      map[*core]struct{}
}

// watchInterval is how often the communicators are asked.
const watchInterval = 50 * time.Millisecond

// watch begins to watch c, and keeps its handle reachable.
func watch(c *core) {
	watching.Lock()
	defer watching.Unlock()
	if watching.comms == nil {
		watching.comms = map[*core]struct{}{}
		go watchAll()
	}
	watching.comms[c] = struct{}{}
}

// unwatch ends watch.
func unwatch(c *core) {
	watching.Lock()
	defer watching.Unlock()
	delete(watching.comms, c)
}

func watchAll() {
	var all []*core
	for {
		time.Sleep(watchInterval)
		all = all[:0]
		watching.Lock()
		for c := range watching.comms {
			all = append(all, c)
		}
		if len(all) == 0 {
			watching.comms = nil
			watching.Unlock()
			return
		}
		watching.Unlock()
		for _, c := range all {
			c.check()
		}
	}
}

// check asks NCCL for an error of work in progress, unless a call is in flight.
func (c *core) check() {
	if !c.mu.TryLock() {
		c.checkCall()
		return
	}
	defer c.mu.Unlock()
	c.stuck = stuck{}
	if !c.ready.Load() || c.err() != nil {
		return
	}
	if err := c.ask(); err != nil {
		c.session.fail(explained(err))
	}
}

// desertion is how long a call may stay in NCCL after the ranks that it can wait for have left.
const desertion = 10 * time.Second

// errDeserted is why a communicator fails whose end takes longer than desertion.
var errDeserted = fmt.Errorf("NCCL has not released it %v after all ranks have closed theirs: is another process stopped?", desertion)

// stuck is how long a call has been in NCCL that ranks which have left may hold up.
type stuck struct {
	cause error // that calls fail with; a call and the end of the communicator have different ones
	since time.Time
}

// checkCall aborts all communicators of the session if the call in flight takes longer than desertion after a rank of
// another process has left in order or, if the call ends the communicator, after all of them have.
func (c *core) checkCall() {
	cause, ends := c.session.usable(), c.ends.Load()
	if ends {
		cause = c.session.deserted()
	}
	switch {
	case cause == nil || c.err() != nil:
		c.stuck = stuck{}
	case c.stuck.cause != cause:
		c.stuck = stuck{cause, time.Now()}
	case time.Since(c.stuck.since) > desertion:
		c.session.lose(cause)
		if ends {
			lifetime.Report(named("Comm.Close", c.err()))
		}
	}
}
