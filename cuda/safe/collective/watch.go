package collective

import (
	"sync"
	"time"
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

// check asks NCCL for an error of work in progress, unless a call is in flight. One that is there for long after another
// rank has left in order waits for that rank: then all communicators of the session are aborted.
func (c *core) check() {
	if !c.mu.TryLock() {
		if left := c.session.usable(); left == nil || c.Closed() {
			c.stuck = time.Time{}
		} else if c.stuck.IsZero() {
			c.stuck = time.Now()
		} else if time.Since(c.stuck) > desertion {
			c.session.lose(left)
		}
		return
	}
	defer c.mu.Unlock()
	c.stuck = time.Time{}
	if !c.ready || c.err() != nil {
		return
	}
	if err := c.ask(); err != nil {
		c.session.fail(explained(err))
	}
}
