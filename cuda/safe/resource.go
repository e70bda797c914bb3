package safe

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A Resource stands for an object of another library, such as a communicator, that work
// enqueued by [EnqueueRaw] uses. List it among the uses: the work retains it as it retains
// memory, and so do the graph and its executables if the stream is capturing. Any number of
// goroutines may use a Resource at once.
type Resource struct{ memory *memory }

// NewResource makes a Resource in the context x. release is called once: when the Resource
// is closed or dropped, the work that uses it has completed, and the graphs and executables
// that retain it are closed. Other releases of this package wait for it, so it must return
// soon: start a goroutine for more. It must not call functions of this package, nor wait for
// such calls on other goroutines: these may wait for release, as [Graph.Instantiate] does. A panic of release is reported to [OnError].
//
// NewResource returns [ErrInvalidArgument] if release is nil, and [ErrClosed] if the
// context is closed.
func NewResource(x *Context, release func()) (*Resource, error) {
	const op = "NewResource"
	if release == nil {
		return nil, refuse(op, ErrInvalidArgument, "release is nil")
	}
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{ctx: c, resource: &resource{release: release}}
	if err := b.Open(b, &c.Handle); err != nil {
		return nil, wrap(op, err)
	}
	return &Resource{newMemory(b)}, nil
}

// resource is the part of a block that has no memory but an object of another library.
type resource struct {
	release func()
	revoked atomic.Bool
}

// destroyResource is called again until the work that uses the resource has completed.
func (b *block) destroyResource() error {
	if !b.last.over(b.known(), false) {
		return lifetime.ErrLater
	}
	if err := caughtApart(b.resource.release); err != nil {
		lifetime.Report(err)
	}
	return nil
}

// Arg returns the Resource for the uses of [EnqueueRaw] and of [Stream.EnqueueRaw].
func (r *Resource) Arg() Arg {
	if r == nil || r.memory == nil {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	return addressArg(r.memory, 0)
}

// Context returns the context of the resource, as [Stream.Context] does.
func (r *Resource) Context() *Context {
	if r == nil {
		return nil
	}
	return r.memory.context()
}

// Close refuses further uses and returns at once: see [NewResource] for when the object is
// released. Closing again does nothing.
func (r *Resource) Close() error {
	if r == nil || r.memory == nil {
		return nil
	}
	r.memory.cleanup.Stop()
	r.memory.CloseLater()
	return nil
}

// Revoke closes the Resource because the object fails before its users are done. From now
// on, launches of executables that retain it return [ErrClosed]. Revoke waits for launches
// in flight, but at most for a second: a launch may wait for room in its stream's queue.
// Work that is enqueued stays enqueued.
func (r *Resource) Revoke() {
	if r == nil || r.memory == nil {
		return
	}
	r.memory.resource.revoked.Store(true)
	admit.Between()
	revocations.Add(1) // also the second time: a concurrent call may not have got here yet
	_ = r.Close()
	window := admit.FirstWindow
	for end := time.Now().Add(time.Second); time.Now().Before(end) && !executables.Idle(window); {
		time.Sleep(window)
		window = min(2*window, admit.LastWindow)
	}
}

// revocations counts the resources of the process that were revoked.
var revocations atomic.Int64

// unrevoked returns an error if the executable retains a resource that was revoked. mu is held, and the
// call is admitted by the executables gate.
func (e *execCore) unrevoked(op string) error {
	if n := revocations.Load(); n != e.revocations {
		admit.Between()
		e.revocations, e.revoked = n, e.kept.revoked()
	}
	if e.revoked == nil {
		return nil
	}
	return refuse(op, e.revoked, "the graph uses an object of another library that has failed, such as an aborted communicator")
}

// revoked returns ErrClosed if something retained is a resource that was revoked.
func (h *graphRetained) revoked() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := cmp.Or(h.captured.revoked(), h.nodes.objects().revoked())
	for _, inner := range h.nodes.inner {
		err = cmp.Or(err, inner.revoked())
	}
	return err
}

// revoked returns ErrClosed if k has a resource that was revoked, in a set inside it too.
func (k *retained) revoked() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.objects {
		if b, ok := h.Object().(*block); ok && b.resource != nil && b.resource.revoked.Load() {
			return ErrClosed
		}
	}
	if inner := k.inner(); inner != nil {
		return inner.revoked()
	}
	return nil
}

// String describes the resource for messages.
func (r *Resource) String() string {
	if r == nil || r.memory == nil {
		return neverOpened("Resource")
	}
	return "Resource on " + r.memory.ctx.device.String() + closedText(r.memory.Closed())
}

// Retain keeps memory allocated while another library knows its address, for instance because it is registered with a
// network card: memory that is closed or dropped in the meantime is freed after release. uses lists the memory,
// textures, surfaces and resources, as for [EnqueueRaw]. Retain orders nothing: enqueue the work that uses the memory
// by [EnqueueRaw] all the same.
//
// release returns at once. It may be called on any goroutine and thread, even by host functions and by the function of
// [NewResource]. Calling it again does nothing. If the program drops release without calling it, the garbage collector
// calls it and reports a leak: see [TrackLeaks]. Until then, the context stays open, as with an open [Buffer].
//
// Retain returns [ErrClosed] if something in uses is closed, and [ErrInvalidArgument] if uses contains a value, or
// memory that launches of a graph allocate, because they free it, too.
func Retain(uses ...Arg) (release func(), err error) {
	const op = "Retain"
	r := &retention{objects: newRetained()}
	for i := range uses {
		if err := r.add(op, i, &uses[i]); err != nil {
			r.objects.release()
			return nil, err
		}
	}
	if err := r.Open(r, nil); err != nil {
		r.objects.release()
		return nil, wrap(op, err)
	}
	h := &heldRetention{retention: r}
	h.cleanup.Watch(&r.Handle)
	return h.release, nil
}

// A retention is what Retain retains. It has no parent: Context.CloseAll must not end it.
type retention struct {
	lifetime.Handle
	objects *retained
}

// heldRetention is what the program holds of a retention.
type heldRetention struct {
	*retention
	cleanup lifetime.Cleanup
}

func (h *heldRetention) release() {
	h.cleanup.Stop()
	_ = h.Close() // Destroy does not fail
}

// Kind implements lifetime.Object.
func (r *retention) Kind() string { return "Retain" }

// Destroy implements lifetime.Object.
func (r *retention) Destroy(bool) error {
	r.objects.release()
	return nil
}

// add retains one object.
func (r *retention) add(op string, i int, use *Arg) error {
	what := fmt.Sprintf("use %d", i)
	if use.raw.Kind() != rt.NearOfBlock {
		return badUse(op, what, Device{}, use)
	}
	b := use.block()
	if b.graph != nil {
		return refuse(op, ErrInvalidArgument, "%s is memory that launches of a graph allocate and free", what)
	}
	if !r.objects.retain(&b.Handle, b.Acquire) {
		return refuse(op, ErrClosed, "%s", what)
	}
	return nil
}
