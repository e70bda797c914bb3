package safe

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Retain keeps memory as it is while another library knows its address, for instance
// registered with a network card: memory that is closed or dropped in the meantime is freed
// after release. uses lists the memory, textures, surfaces and resources, as for
// [EnqueueRaw]. Enqueue work that uses the memory by EnqueueRaw all the same: Retain orders
// nothing.
//
// release returns at once and may be called on any goroutine and thread, also by host
// functions and by the function of [NewResource]. Calling it again does nothing. If the
// program drops release without calling it, the garbage collector does, and reports a leak:
// see [TrackLeaks]. Until then, the context stays open, as with an open Buffer.
//
// Retain returns [ErrClosed] if something in uses is closed, and [ErrInvalidArgument] if uses
// contains a value, or memory that launches of a graph allocate, since they free it, too.
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
