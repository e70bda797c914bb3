package safe

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// poller asks the events that somebody waits for, in one goroutine. It runs
// only while there are waiters.
var poller polling

type polling struct {
	alarm rt.Alarm

	mu      sync.Mutex
	fresh   []*waiter
	running bool
	left    atomic.Bool // some waiters are not waited for any more
}

// A waiter waits for an event. end is called, by the poller, when the event is
// not needed any more.
type waiter struct {
	home  rt.Home
	event driver.CUevent
	queue any           // events of one queue complete in order, as a rule
	from  time.Time     // the event was not recorded before, zero where that is not known,
	to    time.Time     // nor after that
	takes time.Duration // perhaps; 0 where nobody knows
	code  chan driver.CUresult
	then  func(driver.CUresult) // in place of code; must not block
	end   func()
	left  atomic.Bool
}

// wait has the poller look after w, until ctx ends.
func (w *waiter) wait(ctx context.Context, op string) error {
	w.code = make(chan driver.CUresult, 1)
	poller.add(w)
	select {
	case code := <-w.code:
		return check(op, code)
	case <-ctx.Done():
		w.leave()
		return &Error{Op: op, Err: context.Cause(ctx)}
	}
}

// leave tells that nobody waits any more.
func (w *waiter) leave() {
	w.left.Store(true)
	if !poller.left.Swap(true) {
		poller.alarm.Wake()
	}
}

func (w *waiter) deliver(code driver.CUresult) {
	w.end()
	if w.then != nil {
		w.then(code)
		return
	}
	w.code <- code
}

func (p *polling) add(w *waiter) {
	p.mu.Lock()
	p.fresh = append(p.fresh, w)
	start := !p.running
	p.running = true
	p.mu.Unlock()
	if start {
		go p.run()
		return
	}
	p.alarm.Wake()
}

// take returns what is new. done tells that there is nothing more to do.
func (p *polling) take(idle bool) (fresh []*waiter, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh = p.fresh
	p.fresh = nil
	if idle && len(fresh) == 0 {
		p.running = false
	}
	return fresh, !p.running
}

func (p *polling) run() {
	var l waitQueues
	for {
		seen, left := p.alarm.Seen(), p.left.Swap(false) // before those that may have left are taken
		fresh, done := p.take(len(l.entries) == 0)
		if done {
			return
		}
		for _, w := range fresh {
			l.add(w)
		}
		if left {
			l.forget()
		}
		if len(l.entries) > 0 && rt.Poll(l.entries, &p.alarm, seen) > 0 {
			l.deliver()
		}
	}
}

// lines are the waiters, in a line for each stream: only the first of a line is
// asked. entries[i] is for the first of lists[i].
type waitQueues struct {
	entries []rt.Entry
	lists   [][]*waiter
	at      map[any]int
	given   int
}

func entry(w *waiter) rt.Entry {
	return rt.Entry{Home: w.home, Event: w.event, Expected: int64(w.takes), Result: driver.CUDA_ERROR_NOT_READY}
}

func (l *waitQueues) add(w *waiter) {
	if i, ok := l.at[w.queue]; ok {
		l.lists[i] = append(l.lists[i], w)
		return
	}
	if l.at == nil {
		l.at = map[any]int{}
	}
	l.at[w.queue] = len(l.lists)
	l.lists = append(l.lists, []*waiter{w})
	l.entries = append(l.entries, entry(w))
}

// remove takes a line out, and puts the last one in its place.
func (l *waitQueues) remove(i int) {
	last := len(l.lists) - 1
	delete(l.at, l.lists[i][0].queue)
	if i != last {
		l.lists[i], l.entries[i] = l.lists[last], l.entries[last]
		l.at[l.lists[i][0].queue] = i
	}
	l.lists[last] = nil
	l.lists, l.entries = l.lists[:last], l.entries[:last]
}

// forget lets those go that nobody waits for.
func (l *waitQueues) forget() {
	for i := len(l.lists) - 1; i >= 0; i-- {
		list, first := l.lists[i], l.lists[i][0]
		var keep []*waiter
		for _, w := range list {
			if !w.left.Load() {
				keep = append(keep, w)
				continue
			}
			w.end()
		}
		switch {
		case len(keep) == 0:
			l.remove(i)
		case keep[0] != first:
			l.entries[i] = entry(keep[0])
			fallthrough
		default:
			l.lists[i] = keep
		}
	}
}

// deliver tells those whose events are done, which more of a line may be than the
// first.
func (l *waitQueues) deliver() {
	for i := len(l.entries) - 1; i >= 0; i-- {
		code := l.entries[i].Result
		if code == driver.CUDA_ERROR_NOT_READY {
			continue
		}
		list := l.lists[i]
		codes := append([]driver.CUresult{code}, ended(list[1:])...)
		if n := len(codes); n == len(list) {
			l.remove(i)
		} else {
			l.lists[i] = list[n:]
			l.entries[i] = entry(list[n])
		}
		for k, code := range codes {
			l.give(list[k], code)
		}
	}
}

// ended returns the results of those at the head of a line whose events are done.
// Where the last of many is done, those that came before it need not be asked.
func ended(list []*waiter) (codes []driver.CUresult) {
	ask := func(w *waiter) driver.CUresult { return w.home.EventQuery(w.event) }
	var reached time.Time
	if n := len(list); n > 2 && ask(list[n-1]) == driver.CUDA_SUCCESS {
		reached = list[n-1].from
	}
	for _, w := range list {
		code := driver.CUDA_SUCCESS
		if !w.to.Before(reached) {
			code = ask(w)
		}
		if code == driver.CUDA_ERROR_NOT_READY {
			break
		}
		codes = append(codes, code)
	}
	return codes
}

// give delivers, and now and then lets those run who were waiting.
func (l *waitQueues) give(w *waiter, code driver.CUresult) {
	w.deliver(code)
	if l.given++; l.given%4 == 0 {
		runtime.Gosched()
	}
}
