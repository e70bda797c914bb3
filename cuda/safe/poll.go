package safe

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// poller polls the events of all waits whose goroutines do not wait by themselves, in one goroutine at a time as long as
// there are waits: in one of its own, or in that of the first wait, up to its end, if that has no deadline.
var poller polling

type polling struct {
	alarm rt.Alarm

	mu        admit.Leaf // guards fresh and running
	fresh     []*waiter
	running   bool
	abandoned atomic.Bool   // some waits were abandoned
	rounds    atomic.Uint32 // after which those are forgotten
}

// A waiter waits for an event. The poller calls end once the event is no longer needed.
type waiter struct {
	home      rt.Home
	event     driver.CUevent
	queue     any           // events of one queue complete in order, as a rule; nil for one of its own
	order     uint64        // the order in which they were recorded
	from      time.Time     // the event was recorded after this, zero if unknown,
	to        time.Time     // and before this
	takes     time.Duration // estimate from now on, 0 if unknown
	steady    bool          // the last waits of the stream took alike
	code      chan driver.CUresult
	then      func(driver.CUresult) // in place of code; must not block
	end       func()
	abandoned atomic.Bool
}

// mostSpin is how many goroutines may spin at a time, and how many others may await steady work.
func mostSpin() int32 { return max(1, admit.Processors.Load()/4) }

var awaiting atomic.Int32

// mostAwaited is the longest wait for which a goroutine keeps a thread, where it does not notice that its context is canceled.
const mostAwaited = 3 * time.Millisecond

// await waits for steady work: it sleeps until shortly before the expected end, and then spins, unless many goroutines do
// so already, or ctx ends sooner. It returns driver.CUDA_ERROR_NOT_READY if the work has not completed shortly after that.
func (w *waiter) await(ctx context.Context) driver.CUresult {
	if !w.steady || w.takes <= 0 || w.takes > mostAwaited || endsWithin(ctx, w.takes) {
		return driver.CUDA_ERROR_NOT_READY
	}
	defer awaiting.Add(-1)
	if awaiting.Add(1) > mostSpin() {
		return driver.CUDA_ERROR_NOT_READY
	}
	e := entry(w)
	w.takes = 0
	return rt.Await(&e)
}

// endsWithin tells whether ctx has ended, or has a deadline that is sooner than d from now.
func endsWithin(ctx context.Context, d time.Duration) bool {
	end, has := ctx.Deadline()
	return has && time.Until(end) < d || ctx.Err() != nil
}

// wait waits for w: in this goroutine if it is known when the work ends, else in the poller, until ctx ends.
func (w *waiter) wait(ctx context.Context, op string) error {
	if tell := admit.OnWait.Load(); tell != nil {
		begin, thread := time.Now(), rt.Thread()
		defer func() { (*tell)(op, begin, thread) }()
	}
	if code := w.await(ctx); code != driver.CUDA_ERROR_NOT_READY {
		w.end()
		return check(op, code)
	}
	w.code = make(chan driver.CUresult, 1)
	switch start := poller.add(w); {
	case !start:
	case ctx.Done() == nil:
		poller.run(&waitQueues{}, w) // need not be woken, which takes some 10 µs on an idle machine
	default:
		go poller.run(&waitQueues{}, nil) // ends with ctx even if the driver blocks a query
	}
	select {
	case code := <-w.code:
		return check(op, code)
	case <-ctx.Done():
		poller.abandon(w)
		return &Error{Op: op, Err: context.Cause(ctx)}
	}
}

// abandon gives up the wait of w.
func (p *polling) abandon(w *waiter) {
	w.abandoned.Store(true)
	admit.Between()
	if !p.abandoned.Swap(true) {
		admit.Between()
		p.alarm.Wake()
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

// add adds a waiter. It returns true if no goroutine polls: the caller must then call run.
func (p *polling) add(w *waiter) (start bool) {
	p.mu.Lock()
	p.fresh = append(p.fresh, w)
	start = !p.running
	p.running = true
	p.mu.Unlock()
	if !start {
		p.alarm.Wake()
	}
	return start
}

// take returns new waiters. done means that there are none and the poller stops.
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

// run polls until no wait is left. If leader is set, it returns when that wait ends, and starts a goroutine that polls on.
func (p *polling) run(l *waitQueues, leader *waiter) {
	for {
		seen, done := p.update(l)
		if done {
			return
		}
		if leader != nil && len(leader.code) > 0 {
			go p.run(l, nil)
			return
		}
		if len(l.entries) > 0 && rt.Poll(l.entries, &p.alarm, seen) > 0 {
			l.deliver(leader == nil)
		}
	}
}

// update adds new waiters to l and removes those that were abandoned. What comes later rings the alarm after
// seen. done means that there are none and the poller stops.
func (p *polling) update(l *waitQueues) (seen uint32, done bool) {
	seen = p.alarm.Seen()
	admit.Between()
	abandoned := p.abandoned.Swap(false) // after Seen, or an abandoned wait could be missed
	fresh, done := p.take(len(l.entries) == 0)
	if done {
		return seen, true
	}
	for _, w := range fresh {
		l.add(w)
	}
	if abandoned {
		l.forget()
	}
	p.rounds.Add(1)
	return seen, false
}

// sweep waits until the poller has forgotten the waits that were given up before.
func (p *polling) sweep() {
	const enough = 2 // the present round may have begun before
	for from, nap := p.rounds.Load(), admit.ShortNap; p.rounds.Load()-from < enough; nap = nap.Take() {
		p.mu.Lock()
		running := p.running
		p.mu.Unlock()
		if !running {
			return
		}
		p.alarm.Wake()
	}
}

// waitQueues groups waiters by queue, such as a stream. Only the first event of each
// queue is polled: entries[i] is for lists[i][0].
type waitQueues struct {
	entries []rt.Entry
	lists   [][]*waiter
	at      map[any]int
	given   int
}

func entry(w *waiter) rt.Entry {
	return rt.Entry{Home: w.home, Event: w.event, Expected: int64(max(w.takes, 0)), Result: driver.CUDA_ERROR_NOT_READY}
}

func (l *waitQueues) add(w *waiter) {
	if w.queue == nil {
		w.queue = w
	}
	if i, ok := l.at[w.queue]; ok {
		l.insert(i, w)
		return
	}
	if l.at == nil {
		l.at = map[any]int{}
	}
	l.at[w.queue] = len(l.lists)
	l.lists = append(l.lists, []*waiter{w})
	l.entries = append(l.entries, entry(w))
}

// insert adds w to a queue in the order of the records: it comes late if its caller has spun, for instance.
func (l *waitQueues) insert(i int, w *waiter) {
	at := len(l.lists[i])
	for at > 0 && l.lists[i][at-1].order > w.order {
		at--
	}
	l.lists[i] = slices.Insert(l.lists[i], at, w)
	if at == 0 {
		l.entries[i] = entry(w)
	}
}

// remove removes a queue and moves the last one into its place.
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

// forget removes abandoned waiters.
func (l *waitQueues) forget() {
	for i := len(l.lists) - 1; i >= 0; i-- {
		list, first := l.lists[i], l.lists[i][0]
		var keep []*waiter
		for _, w := range list {
			if !w.abandoned.Load() {
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

// deliver delivers results. When the first event of a queue has completed, later ones may
// have as well. With yields, the goroutine lets the woken ones run in between.
func (l *waitQueues) deliver(yields bool) {
	for i := len(l.entries) - 1; i >= 0; i-- {
		code := l.entries[i].Result
		if code == driver.CUDA_ERROR_NOT_READY {
			continue
		}
		list := l.lists[i]
		codes := append([]driver.CUresult{code}, completed(list[1:])...)
		if n := len(codes); n == len(list) {
			l.remove(i)
		} else {
			l.lists[i] = list[n:]
			l.entries[i] = entry(list[n])
		}
		for k, code := range codes {
			list[k].deliver(code)
			if l.given++; yields && l.given%4 == 0 {
				runtime.Gosched()
			}
		}
	}
}

// completed returns the results of the completed events at the head of a queue. If the
// last event has completed, earlier events need no query.
func completed(list []*waiter) (codes []driver.CUresult) {
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
