package library

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Options says what an [Object] is.
type Options struct {
	// Name is what reports of leaks call the Object, such as "FFT plan".
	Name string
	// Create creates what the library needs, while no stream of the context captures. The
	// context is current, and the library may wait for all of its work. If Create fails, it
	// leaves nothing behind, but for what the next call goes on with: see OutOfMemory.
	Create func() error
	// Destroy destroys it while no stream of the context captures, on a goroutine of its own. A
	// panic there becomes a [safe.PanicError]. Neither function may refer to the Object, nor to
	// what holds it: the garbage collector would never find it dropped.
	Destroy func() error
	// OutOfMemory is the error by which the library says that the device has too little
	// memory. New then makes room and calls Create again, as it does after
	// [driver.CUDA_ERROR_OUT_OF_MEMORY].
	OutOfMemory error
	// Handles is how many calls may be inside the library at once, 0 for 1, 4096 at most: see
	// [Place.Handle].
	Handles int
	// CallsOnly says that work needs the Object only while it is enqueued, as with cuBLAS: then
	// graphs do not retain it, and Close destroys it at once.
	CallsOnly bool
	// Streams is how many streams have memory for [Object.Enqueue] at the same time, of at least
	// Workspace bytes, which belongs to the Object. With 0 Streams, all such Objects of a
	// context share the memory of 16 streams.
	Streams, Workspace int
}

// Object is an object of a library in one context, such as a handle. Any number of goroutines
// may use it at once, on any streams of the context.
//
// An Object keeps its context: [safe.Context.Close] before [Object.Close] is fine. Close it
// before [safe.Context.CloseAll], which closes its memory.
type Object struct {
	core *core
	stop lifetime.Cleanup
}

type core struct {
	lifetime.Handle              // of calls
	acquired        atomic.Int64 // of its references: those of Acquire, which Release ends and no others
	o               Options
	x               *safe.Context
	held            *safe.Resource // in x, closed
	leave           func()         // releases what keeps x usable
	resource        *safe.Resource // that work retains, or nil
	end             end
	destroys        lifetime.Queue // of this core: its destruction waits for the context
	handles         []sync.Mutex   // leaves: whoever has one is inside the library and waits for nothing of this process
	spaces          *workspaces
}

const mostHandles = 4096

// New creates an Object in a context. That may wait for all work of the context, and for
// captures that begin meanwhile.
//
// It returns [safe.ErrCapturing] while a stream of the context is capturing, [safe.ErrClosed]
// if the context is closed, and the error of Create.
func New(x *safe.Context, o Options) (*Object, error) {
	const op = "library.New"
	if o.Create == nil || o.Destroy == nil {
		return nil, Refuse(op, safe.ErrInvalidArgument, "Create or Destroy is nil")
	}
	if min(o.Handles, o.Streams, o.Workspace) < 0 || o.Handles > mostHandles {
		return nil, Refuse(op, safe.ErrRange, "%d Handles, %d Streams, a Workspace of %d bytes", o.Handles, o.Streams, o.Workspace)
	}
	c, err := newCore(x, o)
	if err != nil {
		return nil, Rename(op, err)
	}
	made := false
	defer func() {
		if !made { // also if Create panics
			c.abandon()
		}
	}()
	if err := c.create(); err != nil {
		return nil, Rename(op, err)
	}
	if !o.CallsOnly {
		c.end.core = c
		err := c.end.Open(&c.end, nil)
		if err == nil {
			c.resource, err = safe.NewResource(c.x, c.end.CloseLater)
		}
		if err != nil {
			return nil, Rename(op, errors.Join(err, c.ended()))
		}
	}
	made = true
	v := &Object{core: c}
	v.stop.Watch(&c.Handle)
	return v, nil
}

// newCore makes a core without what the library creates.
func newCore(x *safe.Context, o Options) (*core, error) {
	c := &core{o: o, handles: make([]sync.Mutex, max(o.Handles, 1))}
	var err error
	if c.held, c.leave, err = hold(x); err != nil {
		return nil, err
	}
	c.x = c.held.Context()
	if err = c.Handle.Open(c, nil); err == nil && o.Streams > 0 {
		c.spaces, err = newWorkspaces(c.x, o.Workspace, o.Streams)
	} else if err == nil {
		c.spaces, err = share(c.x)
	}
	if err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}

// abandon releases what a core has that holds nothing of the library.
func (c *core) abandon() error {
	end := c.spaces.close
	if c.o.Streams == 0 {
		end = c.spaces.unshare
	}
	err := end()
	c.leave()
	return err
}

// hold returns a Resource, closed, whose context is usable until leave, also after [safe.Context.CloseAll].
func hold(x *safe.Context) (in *safe.Resource, leave func(), err error) {
	r, err := safe.NewResource(x, func() {})
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	leave, err = safe.Retain(r.Arg())
	return r, leave, err
}

// create calls Create. If the device has too little memory, it makes room and goes on.
func (c *core) create() error {
	if err := c.spaces.prune(0, 0); err != nil {
		return err
	}
	err := c.whole(c.o.Create)
	for tries := 0; c.o.exhausted(err) && lifetime.MakeRoom(tries); tries++ {
		err = c.whole(c.o.Create)
	}
	return err
}

// exhausted tells whether an error of Create says that the device has too little memory.
func (o *Options) exhausted(err error) bool {
	return errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY) || o.OutOfMemory != nil && errors.Is(err, o.OutOfMemory)
}

// whole calls f, for which the library may wait for the context's work, while no stream
// captures. Captures, and destructions on every device, wait for f. So whole waits before for
// the work that is there now.
func (c *core) whole(f func() error) error {
	if err := c.x.Wait(context.Background()); err != nil && !safe.IsFatal(err) {
		return err
	}
	return c.x.WithoutCaptures(f)
}

// ended calls Destroy on a goroutine of its own, as the caller may be one that others depend on: Destroy
// may panic, and end it.
func (c *core) ended() (err error) {
	lifetime.Apart(func() {
		defer func() {
			if v := recover(); v != nil {
				err = &safe.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		err = c.whole(c.o.Destroy)
	})
	return err
}

// Close refuses further calls. Calls in flight, and work that they have enqueued, complete. The object is destroyed
// when no work, graph or executable uses it and no stream of the context captures, after a wait for the context's work.
// Close does not wait for that, unless Options.CallsOnly is set and no call is in flight. Closing again does nothing.
func (o *Object) Close() error {
	if o == nil || o.core == nil {
		return nil
	}
	o.stop.Stop()
	pruned := o.core.spaces.prune(0, 0)
	if err := o.core.Close(); err != nil {
		return Rename("library.Object.Close", err)
	}
	return Rename("library.Object.Close", pruned)
}

// Context returns a context that is usable as long as the Object is open.
func (o *Object) Context() *safe.Context {
	if o == nil || o.core == nil {
		return nil
	}
	return o.core.held.Context() // not x: the program may write another one there
}

// Matches returns [safe.ErrContextMismatch] if the stream belongs to another context than the Object, [safe.ErrReset] if
// the primary context was reset between the two, and [safe.ErrClosed] if one of their contexts is gone. [Call.Submit] checks
// that by itself.
func (o *Object) Matches(s *safe.Stream) error {
	if o == nil || o.core == nil {
		return safe.ErrClosed
	}
	x, c := s.Context(), o.core
	switch {
	case x.Raw() == 0:
		return fmt.Errorf("%w: the stream", safe.ErrClosed)
	case c.x.Raw() == 0: // calls need not acquire the Object
		return safe.ErrClosed
	case x.Equal(c.x):
		return nil
	case x.Raw() == c.x.Raw():
		return Refuse("", safe.ErrReset, "the %s or the stream was made before that", c.o.Name)
	}
	return Refuse("", safe.ErrContextMismatch, "the %s belongs to a context of %v, the stream to one of %v", c.o.Name, c.x.Device(), s.Device())
}

// Workspaces returns how many streams have a workspace now. Memory that only graphs use does not count.
func (o *Object) Workspaces() int {
	if o == nil || o.core == nil {
		return 0
	}
	return o.core.spaces.count()
}

// Acquire keeps the Object from being destroyed until [Object.Release]. It returns [safe.ErrClosed] if the Object is
// closed. [Call.Submit] does so by itself.
func (o *Object) Acquire() error {
	if o == nil || o.core == nil || !o.core.Handle.Acquire() {
		return safe.ErrClosed
	}
	o.core.acquired.Add(1)
	return nil
}

// Release ends an [Object.Acquire]. It does nothing if there was none.
func (o *Object) Release() {
	if o == nil || o.core == nil {
		return
	}
	for n := o.core.acquired.Load(); n > 0; n = o.core.acquired.Load() {
		if o.core.acquired.CompareAndSwap(n, n-1) {
			o.core.Handle.Release()
			return
		}
	}
}

// Whole calls f while no stream of the context captures, for calls of the library that may wait for the whole context.
// It first waits for the work that is enqueued in the context. It returns [safe.ErrCapturing] while a stream captures.
func (o *Object) Whole(f func() error) error {
	const op = "library.Object.Whole"
	if o == nil || o.core == nil || !o.core.Acquire() {
		return Rename(op, safe.ErrClosed)
	}
	defer o.core.Release()
	if r := o.core.resource; r != nil { // Context.CloseAll closes it, and what the library has made is destroyed then
		release, err := safe.Retain(r.Arg())
		if err != nil {
			return Rename(op, err)
		}
		defer release()
	}
	return Rename(op, o.core.whole(f))
}

// Kind implements lifetime.Object.
func (c *core) Kind() string { return c.o.Name }

// Destroy implements lifetime.Object: no call is in flight.
func (c *core) Destroy(wait bool) error {
	if c.resource != nil {
		return c.resource.Close() // its release ends the core
	}
	return c.destroy(wait)
}

// destroy destroys the library's object.
func (c *core) destroy(wait bool) error {
	if !wait {
		return &lifetime.Elsewhere{Queue: &c.destroys}
	}
	c.left()
	err := c.ended()
	if errors.Is(err, safe.ErrCapturing) || errors.Is(err, safe.ErrInCallback) {
		return lifetime.ErrLater
	}
	if errors.Is(err, safe.ErrReset) {
		err = nil // the reset has destroyed everything
	}
	return errors.Join(err, c.abandon())
}

// left waits for calls whose work may be over, but not their Called. No others begin.
func (c *core) left() {
	for i := range c.handles {
		c.handles[i].Lock()
		defer c.handles[i].Unlock()
	}
}

// end is the life of what the library has created, after that of calls.
type end struct {
	lifetime.Handle
	core *core
}

// Kind implements lifetime.Object.
func (e *end) Kind() string { return e.core.o.Name }

// Destroy implements lifetime.Object: no work, graph or executable uses the object.
func (e *end) Destroy(wait bool) error {
	err := e.core.destroy(wait)
	if lifetime.Postponed(err) {
		return err
	}
	return Rename("library.Object.Close", err)
}
