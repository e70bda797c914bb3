package collective

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Comm is one rank of a communicator: a GPU that exchanges data with the GPUs of the other
// ranks. [Open] and [Join] make it. Any number of goroutines may use it at once, but all
// ranks must enqueue the same operations in the same order.
type Comm struct {
	core    *core
	calls   *Calls // that operations join: see In
	cleanup lifetime.Cleanup
	whole   *Comm // with calls: the one that the program holds
}

// core is the part of a Comm that stays when the program has dropped it.
type core struct {
	lifetime.Handle
	number     uint64 // in the order of creation: the order of locks
	rank, size int
	x          *safe.Context  // of its own, open until NCCL has released the communicator
	uses       *safe.Resource // that all work lists
	major      int            // compute capability
	session    *session
	ending     sync.Once
	ends       atomic.Bool   // in order, after all calls and the work that they have enqueued
	gone       chan struct{} // closed by over: NCCL has released the communicator, or nobody waits for that any more
	over       func()

	life  context.Context // ends with the communicator; the cause is the error of later calls
	leave context.CancelCauseFunc

	mu    sync.Mutex // NCCL allows one call at a time. Only leaf locks are taken under it
	raw   *nccl.NcclComm_t
	pin   runtime.Pinner
	child bool        // a split makes raw
	local *localRanks // or nil, if NCCL was not to make raw, or has not split it off
	ready atomic.Bool // NCCL has made raw, and may be asked for errors; set with mu held
	stuck stuck       // of watchAll
	state nccl.NcclResult_t

	registered []*registration
	version    atomic.Uint64 // changes with registered and with what operations list of it
}

var numbers atomic.Uint64

// newCore makes a core whose handle NCCL has yet to make, in the primary context of the
// device that x is on.
func newCore(op string, x *safe.Context, s *session, rank, size int) (*core, error) {
	c := &core{number: numbers.Add(1), rank: rank, size: size, child: size == 0, session: s, gone: make(chan struct{}), raw: new(nccl.NcclComm_t)}
	c.over = sync.OnceFunc(func() { close(c.gone) })
	own, err := safe.Open(x.Device().Ordinal())
	if err != nil {
		return nil, named(op, err)
	}
	if !own.Equal(x) {
		return nil, errors.Join(refuse(op, safe.ErrContextMismatch, "NCCL works in the primary context of %v: use one of safe.Open", x.Device()), own.Close())
	}
	c.x = own
	c.life, c.leave = context.WithCancelCause(context.Background())
	if c.major, _, err = own.Device().ComputeCapability(); err == nil {
		c.uses, err = safe.NewResource(own, c.begin)
	}
	if err == nil {
		err = c.Open(c, nil)
	}
	c.pin.Pin(c.raw)
	watch(c)
	if err == nil {
		err = s.add(c) // complete, as the session may end it at once
	}
	if err != nil {
		unwatch(c)
		c.pin.Unpin()
		c.ending.Do(func() {}) // there is nothing to end
		return nil, errors.Join(named(op, err), c.uses.Close(), own.Close())
	}
	return c, nil
}

// user returns what the program gets.
func (c *core) user() *Comm {
	u := &Comm{core: c}
	u.cleanup.Watch(&c.Handle)
	return u
}

// Kind implements lifetime.Object.
func (c *core) Kind() string { return "Comm" }

// Destroy implements lifetime.Object: no call is in flight. Enqueued work, and graphs,
// may still use the communicator.
func (c *core) Destroy(bool) error { return c.uses.Close() }

// err returns why the communicator has ended, or nil.
func (c *core) err() error {
	if c.life.Err() == nil {
		return nil
	}
	return context.Cause(c.life)
}

// because returns why the communicator has ended, or else what NCCL says of its error.
func (c *core) because(err error) error {
	if end := c.err(); end != nil {
		return end
	}
	return explained(err)
}

// acquire acquires c for a call.
func (c *Comm) acquire(op string) (*core, error) {
	if c == nil || c.core == nil {
		return nil, &safe.Error{Op: op, Err: safe.ErrClosed}
	}
	if err := c.core.err(); err != nil { // which tells more than that it is closed
		return nil, named(op, err)
	}
	if !c.core.Acquire() {
		return nil, &safe.Error{Op: op, Err: safe.ErrClosed}
	}
	return c.core, nil
}

// Rank returns the number of this rank, from 0 to Size-1.
func (c *Comm) Rank() int {
	if c == nil || c.core == nil {
		return 0
	}
	return c.core.rank
}

// Size returns the number of ranks.
func (c *Comm) Size() int {
	if c == nil || c.core == nil {
		return 0
	}
	return c.core.size
}

// Device returns the device of this rank.
func (c *Comm) Device() safe.Device {
	if c == nil || c.core == nil {
		return safe.Device{}
	}
	return c.core.x.Device()
}

// String describes the communicator for messages.
func (c *Comm) String() string {
	if c == nil || c.core == nil {
		return "Comm (never opened)"
	}
	text := fmt.Sprintf("Comm: rank %d of %d on %v", c.core.rank, c.core.size, c.core.x.Device())
	if err := c.Err(); err != nil && !errors.Is(err, safe.ErrClosed) {
		return text + " (" + err.Error() + ")"
	}
	if c.core.Closed() {
		return text + " (closed)"
	}
	return text
}

// Raw returns NCCL's handle for calls of package nccl, or 0 once the communicator is closed
// or aborted. Make such calls by safe.EnqueueRaw or safe.Context.WithoutCaptures, while no
// other goroutine uses the communicator or aborts it.
func (c *Comm) Raw() nccl.NcclComm_t {
	if c == nil || c.core == nil || c.core.Closed() || c.core.err() != nil {
		return 0
	}
	return *c.core.raw
}

// Done returns a channel that is closed when the communicator has been aborted, or closed
// and released by NCCL. [Comm.Err] then tells which.
func (c *Comm) Done() <-chan struct{} {
	if c == nil || c.core == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return c.core.life.Done()
}

// Err returns nil while the communicator works. Once it was aborted, Err returns an error
// that matches [ErrAborted] and wraps the cause, such as a [*PeerError]. Once NCCL has
// released it in order, Err returns safe.ErrClosed.
func (c *Comm) Err() error {
	if c == nil || c.core == nil {
		return safe.ErrClosed
	}
	return c.core.err()
}

// Wait waits until the current work of the stream has completed, as safe.Stream.Wait does.
// It returns an error that matches [ErrAborted] at once if the communicator is aborted, for
// instance because another rank is lost. If ctx ends first, Wait aborts the communicator: an
// operation that waits for a rank that never comes would occupy the GPU for ever.
//
// Use it instead of safe.Stream.Wait for streams with collective operations: these also
// complete when the communicator is aborted, with undefined results.
func (c *Comm) Wait(ctx context.Context, s *safe.Stream) error {
	const op = "Comm.Wait"
	if err := given(op, ctx); err != nil {
		return err
	}
	r, err := c.acquire(op)
	if err != nil {
		return err
	}
	defer r.Release()
	either := either{Context: ctx, other: r.life}
	defer either.end()
	err = s.Wait(&either)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		r.session.fail(context.Cause(ctx))
	}
	if end := r.err(); end != nil {
		return named(op, end)
	}
	return err
}

// either is a context that ends with another one, too. It makes what that takes only when it is asked
// for: a wait for short work does not.
type either struct {
	context.Context
	other context.Context
	once  sync.Once
	both  context.Context
	leave []func()
}

// made returns the context of both.
func (e *either) made() context.Context {
	e.once.Do(func() {
		both, cancel := context.WithCancel(e.Context)
		stop := context.AfterFunc(e.other, cancel)
		e.both, e.leave = both, []func(){cancel, func() { stop() }}
	})
	return e.both
}

// end releases what made has made.
func (e *either) end() {
	for _, f := range e.leave {
		f()
	}
}

// Done implements context.Context.
func (e *either) Done() <-chan struct{} { return e.made().Done() }

// Err implements context.Context. It tells of the end of the other one before Done does.
func (e *either) Err() error {
	if err := e.Context.Err(); err != nil {
		return err
	}
	return e.other.Err()
}

// Value implements context.Context. [context.Cause] calls it.
func (e *either) Value(key any) any { return e.made().Value(key) }

// Abort aborts the communicator: operations that wait for other ranks end, with undefined
// results, and all later calls return an error that wraps [ErrAborted] and cause. The other
// ranks learn of it and abort, too, and so do communicators that were split from it and,
// with [Open], those of the other devices. Executables of graphs that have captured
// operations return safe.ErrClosed from then on.
//
// Abort returns at once, and calls that wait for other ranks return soon after. NCCL releases
// the communicator in the background, once no stream of the device is capturing and graphs with
// its operations and their executables are closed. Abort does nothing if the communicator was aborted or closed before.
// Source: ncclCommAbort.
func (c *Comm) Abort(cause error) {
	if c == nil || c.core == nil || !c.core.Acquire() {
		return
	}
	defer c.core.Release()
	if cause == nil {
		cause = errors.New("by the program")
	}
	c.core.session.fail(cause)
}

// Close closes the communicator and returns at once. Calls return safe.ErrClosed from now
// on. NCCL finalizes and releases the communicator in the background: after the work that
// uses it has completed, and after graphs with its operations and their executables are
// closed. It ends the registrations. Closing again does nothing.
//
// Other ranks may then not enqueue operations either. A program that ends should call
// [Comm.Shutdown], as other ranks may need this process until all work is complete. Errors
// of the release go to the function of safe.OnError.
//
// When NCCL releases the communicator, it may wait for other processes of this machine. If one of them is stopped, by a
// signal or a debugger, nothing ends that wait, not even an abort. After [Join] without Options.IDs, the communicator
// fails 10 s after all ranks have closed theirs: the function of safe.OnError gets an error that matches [ErrAborted],
// and Err and Shutdown return it. If rank 0 is stopped before it has told that others have closed theirs, it takes up to
// Options.PeerTimeout longer. What NCCL has stays in use until that process goes on.
//
// If other code has reset the context, Close aborts the communicators of the other ranks. NCCL then keeps
// its memory of the process, as it must not use what the reset has destroyed, and registrations that have not ended do not
// end any more. So shut communicators down before a reset.
// Source: ncclCommFinalize, ncclCommDestroy.
func (c *Comm) Close() error {
	if c == nil || c.core == nil {
		return nil
	}
	if c.whole != nil {
		return c.whole.Close()
	}
	c.cleanup.Stop()
	return c.core.Close()
}

// Shutdown closes the communicator and waits until NCCL has released it. That takes until all ranks have closed theirs
// after [Join] without [Options].IDs, and otherwise until those of this machine have. Close graphs and executables with
// its operations first: they hold it. If ctx ends first, Shutdown aborts the communicator, or leaves it to NCCL if that
// is already releasing it, and returns the cause. It returns the error that the communicator was aborted with, if it
// was. In a host function it closes the communicator, does not wait, and returns [safe.ErrInCallback].
func (c *Comm) Shutdown(ctx context.Context) error {
	const op = "Comm.Shutdown"
	if c == nil || c.core == nil {
		return nil
	}
	if err := c.Close(); err != nil {
		return named(op, err)
	}
	if err := mayWait(op); err != nil {
		return err
	}
	if err := given(op, ctx); err != nil {
		return err
	}
	select {
	case <-c.core.gone:
	case <-ctx.Done():
		select {
		case <-c.core.gone: // before
		default:
			c.core.session.fail(context.Cause(ctx))
			return named(op, context.Cause(ctx))
		}
	}
	if err := c.core.err(); !errors.Is(err, safe.ErrClosed) {
		return named(op, err)
	}
	return nil
}

// ask asks NCCL for the state of the communicator. mu is held.
func (c *core) ask() error {
	if err := nccl.NcclCommGetAsyncError(*c.raw, &c.state); err != nil {
		return err
	}
	if c.state != nccl.NcclSuccess {
		return c.state
	}
	return nil
}
