package fft

import (
	"errors"
	"maps"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// Cache creates a plan when it is first needed, and keeps the plans that were used most recently. Any number of
// goroutines may use it at once.
type Cache struct {
	x *safe.Context
	o CacheOptions

	mu     sync.Mutex // a leaf: guards what follows
	clock  uint64
	plans  map[problem]*cached
	closed bool
}

// CacheOptions are the options of [NewCache].
type CacheOptions struct {
	Options
	// Plans is how many plans are kept; 0 means 64.
	Plans int
}

// cached is a plan of a Cache, whose mu guards the other fields.
type cached struct {
	*plan
	used    uint64
	calls   int  // that use it
	evicted bool // the last of calls closes it
}

// NewCache creates an empty Cache for a context.
//
// It returns [safe.ErrRange] if Plans is negative, and [safe.ErrClosed].
func NewCache(x *safe.Context, o CacheOptions) (*Cache, error) {
	const op = "fft.NewCache"
	if o.Plans < 0 {
		return nil, library.Refuse(op, safe.ErrRange, "CacheOptions.Plans is %d", o.Plans)
	}
	if x.Raw() == 0 {
		return nil, library.Rename(op, safe.ErrClosed)
	}
	if o.Plans == 0 {
		o.Plans = 64
	}
	return &Cache{x: x, o: o, plans: map[problem]*cached{}}, nil
}

// Forward enqueues transforms as [Plan.Forward] does, with a plan of the Cache. If the Cache has no open plan for the
// shape and the types, it creates one, with the errors of [New]. So enqueue each shape once before you capture it.
func Forward[I Number, O Complex](c *Cache, stream *safe.Stream, s Shape, in *safe.Buffer[I], out *safe.Buffer[O]) error {
	return transform[I, O](c, "fft.Forward", stream, s, in, out, cufft.CUFFT_FORWARD)
}

// Inverse enqueues transforms as [Plan.Inverse] does, with a plan of the Cache: see [Forward].
func Inverse[I Number, O Complex](c *Cache, stream *safe.Stream, s Shape, in *safe.Buffer[O], out *safe.Buffer[I]) error {
	return transform[I, O](c, "fft.Inverse", stream, s, in, out, cufft.CUFFT_INVERSE)
}

// transform enqueues a transform by a plan of the Cache, and once more by a new one if the plan turns out to be closed.
func transform[I Number, O Complex, A, B Number](c *Cache, op string, stream *safe.Stream, s Shape, in *safe.Buffer[A], out *safe.Buffer[B], direction int32) error {
	for again := true; ; again = false {
		p, err := find[I, O](c, s)
		if err != nil {
			return failed(op, err, s)
		}
		err = runAndRelease(c, op, p, stream, in, out, direction)
		if !again || !errors.Is(err, safe.ErrClosed) || !usable(stream, in, out) || !c.forget(p.plan) {
			return library.Rename(op, err)
		}
	}
}

func runAndRelease[A, B Number](c *Cache, op string, p *cached, s *safe.Stream, in *safe.Buffer[A], out *safe.Buffer[B], direction int32) (err error) {
	defer func() {
		if done := c.release(p); err == nil {
			err = done
		}
	}()
	from, to := &p.in, &p.out
	if direction == cufft.CUFFT_INVERSE {
		from, to = to, from
	}
	return run(op, p.plan, s, in, out, from, to, direction)
}

// usable tells whether the stream and the buffers are open. If a call with them returns [safe.ErrClosed] nevertheless, its
// plan is closed.
func usable(s *safe.Stream, in, out interface{ Raw() driver.CUdeviceptr }) bool {
	return s.Context() != nil && in.Raw() != 0 && out.Raw() != 0
}

// forget removes a plan that is closed. It returns false if the Cache is closed, too.
func (c *Cache) forget(p *plan) bool {
	c.mu.Lock()
	maps.DeleteFunc(c.plans, func(_ problem, have *cached) bool { return have.plan == p })
	closed := c.closed
	c.mu.Unlock()
	return p.Object.Close() == nil && !closed
}

// find returns a plan that the Cache does not close until its release, unless the Cache is closed.
func find[I Number, O Complex](c *Cache, s Shape) (*cached, error) {
	if c == nil || c.x == nil {
		return nil, safe.ErrClosed
	}
	key, err := newProblem[I, O](&s, c.o.Options)
	if err != nil {
		return nil, err
	}
	if p, err := c.get(&key); p != nil || err != nil {
		return p, err
	}
	return c.add(key, s)
}

// add makes a plan and returns it, or that of another goroutine.
func (c *Cache) add(key problem, s Shape) (*cached, error) {
	made, err := newPlan(c.x, &key, s)
	if err != nil {
		return nil, err
	}
	p, over, err := c.put(&key, made)
	if done := over.Close(); done != nil && err == nil {
		return nil, errors.Join(done, c.release(p))
	}
	return p, err
}

// get returns a plan for a call, or nil.
func (c *Cache) get(key *problem) (*cached, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, safe.ErrClosed
	}
	return c.use(c.plans[*key]), nil
}

// use counts a call with a plan, unless that is nil. mu is held.
func (c *Cache) use(p *cached) *cached {
	if p != nil {
		c.clock++
		p.used = c.clock
		p.calls++
	}
	return p
}

// release ends a call with a plan.
func (c *Cache) release(p *cached) error {
	c.mu.Lock()
	p.calls--
	over := p.evicted && p.calls == 0
	c.mu.Unlock()
	if over {
		return p.Object.Close()
	}
	return nil
}

// put keeps a plan, or finds that another goroutine was faster. It returns the plan for the call, and an Object to close
// or nil.
func (c *Cache) put(key *problem, made *plan) (p *cached, over *library.Object, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, made.Object, safe.ErrClosed
	}
	if found := c.use(c.plans[*key]); found != nil {
		return found, made.Object, nil
	}
	if len(c.plans) >= c.o.Plans {
		over = c.evict()
	}
	p = c.use(&cached{plan: made})
	c.plans[*key] = p
	return p, over, nil
}

// evict removes the plan that was used least recently. It returns its Object if no call uses it. mu is held.
func (c *Cache) evict() *library.Object {
	var least *cached
	var at problem
	for key, p := range c.plans {
		if least == nil || p.used < least.used {
			least, at = p, key
		}
	}
	delete(c.plans, at)
	if least.calls > 0 {
		least.evicted = true
		return nil
	}
	return least.Object
}

// Plans returns how many plans there are.
func (c *Cache) Plans() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.plans)
}

// Close closes the plans, as [Plan.Close] does, and refuses further calls. Closing again does
// nothing.
func (c *Cache) Close() (err error) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	plans := c.plans
	c.plans, c.closed = nil, true
	c.mu.Unlock()
	for _, p := range plans {
		err = errors.Join(err, p.Object.Close())
	}
	return library.Rename("fft.Cache.Close", err)
}
