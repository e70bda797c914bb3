package collective

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Registration is memory that is registered with a communicator: see [Register]. Any number
// of goroutines may use it at once.
type Registration struct {
	core    *registration
	cleanup lifetime.Cleanup
}

// Register registers a buffer, or the part that a slice covers, with the communicator of
// this rank. NCCL may then move the content between the GPUs without copies in between.
// That pays if the same memory is used again and again. NCCL decides whether it makes use of
// it, and may refuse memory of safe.NewBuffer: docs/scale.md says which memory it takes.
//
// All ranks must register the memory that they pass to an operation, or none: the results
// of other operations are undefined. Register at all ranks before the first such operation.
// Registering memory again is fine.
//
// The memory stays allocated until the registration has ended, even if the buffer is
// closed. A communicator that is closed ends its registrations. Those of one that is aborted end with the last rank of
// the communicator in this process, and never if NCCL cannot release one of these ranks: the function of safe.OnError
// then gets the error. That is so after other code has reset the context of one.
//
// Register returns [safe.ErrInvalidArgument] if the buffer is empty or launches of a graph
// allocate it, [safe.ErrContextMismatch] if it belongs to another device,
// [safe.ErrCapturing] while a stream of the device is capturing, [safe.ErrInCallback] in a host
// function, and an error that matches errors.ErrUnsupported with NCCL before 2.19.
// Source: ncclCommRegister.
func Register[T any](c *Comm, b *safe.Buffer[T]) (*Registration, error) {
	const op = "collective.Register"
	if err := mayWait(op); err != nil {
		return nil, err
	}
	core, err := c.acquire(op)
	if err != nil {
		return nil, err
	}
	defer core.Release()
	s := spanOf(b)
	if err := s.check(op, "the buffer", core); err != nil {
		return nil, err
	}
	r, err := core.register(op, &s)
	if err != nil {
		return nil, named(op, err)
	}
	u := &Registration{core: r}
	u.cleanup.Watch(&r.Handle)
	return u, nil
}

// Close ends the registration and returns at once. NCCL ends it in the background: after the
// operations of the communicator on that memory have completed, after graphs with such
// operations and their executables are closed, and once no stream of the device is
// capturing. Closing again does nothing.
//
// Operations may still use the memory, and delay the end. But the ranks must agree: before
// the first operation that is to use it without a registration, close the registrations of
// all ranks and wait for [Registration.Done] at all of them.
// Source: ncclCommDeregister.
func (r *Registration) Close() error {
	if r == nil || r.core == nil {
		return nil
	}
	r.cleanup.Stop()
	return r.core.Close()
}

// Done returns a channel that is closed when the registration has ended, by Close or with its communicator. NCCL may
// not release a communicator that was aborted, see [Register]: after an abort, wait with a limit.
func (r *Registration) Done() <-chan struct{} {
	if r == nil || r.core == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return r.core.done
}

// registration is the part of a Registration that stays when the program has dropped it.
// mu of the communicator guards it.
type registration struct {
	lifetime.Handle
	core   *core
	at     extent // what NCCL regards as registered
	handle *unsafe.Pointer
	pin    runtime.Pinner // of handle
	memory []func()       // release it
	// uses is listed by the operations on the memory, or nil if there were none since it was
	// last closed. NCCL finds the registration until it has ended, also after Close. So each
	// time the operations with one resource are over, those with the next must be awaited.
	uses  *safe.Resource
	ended bool
	done  chan struct{}
}

// Kind implements lifetime.Object.
func (r *registration) Kind() string { return "Registration" }

// Destroy implements lifetime.Object.
func (r *registration) Destroy(bool) error {
	r.begin()
	return nil
}

// begin begins the end of the registration, or the next step of it.
func (r *registration) begin() { go r.finish() }

// An extent is a range of addresses.
type extent struct{ begin, end uint64 }

func (e extent) overlaps(o extent) bool { return e.begin < o.end && o.begin < e.end }

// inPages returns the pages that e lies in: NCCL registers whole pages of the host's size.
func (e extent) inPages() extent {
	page := uint64(os.Getpagesize())
	return extent{e.begin / page * page, (e.end + page - 1) / page * page}
}

// register has NCCL register memory of the communicator's device.
func (c *core) register(op string, s *span) (*registration, error) {
	if s.n == 0 {
		return nil, refuse(op, safe.ErrInvalidArgument, "the buffer is empty")
	}
	if err := nccl.Find("ncclCommRegister"); err != nil {
		return nil, err
	}
	release, err := safe.Retain(s.arg)
	if err != nil {
		return nil, err
	}
	r := &registration{core: c, at: s.extent().inPages(), handle: new(unsafe.Pointer), memory: []func(){release}, done: make(chan struct{})}
	if err := r.Open(r, nil); err != nil {
		release()
		return nil, err
	}
	listed := false
	err = patiently(func() error {
		return c.x.WithoutCaptures(c.unlessBusy(func() error {
			r.pin.Pin(r.handle)
			if err := nccl.NcclCommRegister(*c.raw, ffi.Pointer(s.address), s.bytes(), r.handle); err != nil {
				r.pin.Unpin()
				return c.because(err)
			}
			listed = true
			c.registered = append(c.registered, r)
			c.version.Add(1)
			return nil
		}))
	})
	if !listed {
		release()
	}
	return r, err
}

var errBusy = errors.New("another call on the communicator is in flight")

// unlessBusy returns f with mu held. It returns errBusy instead of waiting, because a call
// may wait for other ranks, and those may wait for captures that WithoutCaptures keeps from
// beginning.
func (c *core) unlessBusy(f func() error) func() error {
	return func() error {
		if !c.mu.TryLock() {
			return errBusy
		}
		defer c.mu.Unlock()
		if err := c.err(); err != nil {
			return err
		}
		return f()
	}
}

// patiently calls f again while it returns errBusy.
func patiently(f func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := f(); !errors.Is(err, errBusy) {
			return err
		}
		time.Sleep(pause)
	}
}

// finish ends the registration, unless operations must be awaited first. The end of the
// communicator does the rest if that comes first.
func (r *registration) finish() {
	c := r.core
	err := patiently(func() error { return c.whole(c.unlessBusy(r.end)) })
	if err != nil && c.err() == nil {
		lifetime.Report(named("Registration.Close", err))
	}
}

// end closes the Resource of the registration, or deregisters the memory once no operation uses it. mu of the
// communicator is held.
func (r *registration) end() error {
	if uses := r.uses; uses != nil && !r.ended {
		r.uses = nil
		r.core.version.Add(1)
		return uses.Close() // whose release comes back here
	}
	return r.deregister()
}

// deregister has NCCL end the registration: no operation uses it. If that fails, the memory
// stays until NCCL has released the communicator. mu is held.
func (r *registration) deregister() error {
	if r.ended {
		return nil
	}
	c := r.core
	if *r.handle != nil { // else NCCL has made none
		if err := nccl.NcclCommDeregister(*c.raw, *r.handle); err != nil {
			return explained(err)
		}
	}
	c.registered = slices.DeleteFunc(c.registered, func(o *registration) bool { return o == r })
	r.bequeath()
	r.over()
	return nil
}

// bequeath leaves the memory to another registration that NCCL has made one with this one,
// because it lies in the same pages: all of it stays registered with that. mu is held.
func (r *registration) bequeath() {
	for _, o := range r.core.registered {
		if *r.handle != nil && *o.handle == *r.handle {
			o.at = extent{min(o.at.begin, r.at.begin), max(o.at.end, r.at.end)}
			o.memory = append(o.memory, r.memory...)
			r.memory = nil
			return
		}
	}
}

// over releases the memory. mu is held.
func (r *registration) over() {
	r.ended = true
	r.pin.Unpin()
	for _, release := range r.memory {
		release()
	}
	_ = r.uses.Close()
	r.CloseLater()
	close(r.done)
}

// deregisterAll ends all registrations: the communicator is in order, and no work uses it
// any more. mu is held.
func (c *core) deregisterAll() {
	for _, r := range slices.Clone(c.registered) {
		if err := r.deregister(); err != nil && c.err() == nil {
			lifetime.Report(named("Registration.Close", err))
		}
	}
}

// forgetAll ends the registrations that are left when the communicator has ended, or leaves that to the last one of this
// process: NCCL releases them together. released says whether NCCL has released this one.
func (c *core) forgetAll(released bool) {
	c.mu.Lock()
	local, left := c.local, c.registered
	c.registered = nil
	c.mu.Unlock()
	if local == nil { // NCCL was not to make it
		return
	}
	for _, r := range local.end(left, released) {
		r.forget()
	}
}

// forget ends a registration that NCCL has released.
func (r *registration) forget() {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	r.over()
}

// list lists what the operations use, the registrations of their memory included.
func (b *batch) list() error {
	clear(b.on)
	clear(b.uses)
	b.listed, b.on, b.uses = b.version(), b.on[:0], b.uses[:0]
	for i := range b.calls {
		s, from := b.calls[i].stream, len(b.uses)
		if raw := s.Raw(); raw != 0 && raw != b.calls[i].raw {
			return refuse("", safe.ErrInvalidArgument, "a Stream is another one than when the operation was added")
		}
		if slices.ContainsFunc(b.on, func(w safe.RawWork) bool { return w.Stream == s }) {
			continue
		}
		places := groupPlaces
		for j := range b.calls[i:] {
			if k := &b.calls[i+j]; k.stream == s {
				places += k.places()
				if err := b.listUses(k, from); err != nil {
					return err
				}
			}
		}
		b.on = append(b.on, safe.RawWork{Stream: s, Uses: b.uses[from:], Waits: true, Places: places})
	}
	return nil
}

// listUses lists what one operation uses. What its stream uses begins at from.
func (b *batch) listUses(k *call, from int) error {
	c := k.core
	for _, u := range k.uses[:k.used] {
		if last := b.uses[max(from, len(b.uses)-len(k.uses)):]; !slices.Contains(last, u) { // which costs less than to use it again
			b.uses = append(b.uses, u)
		}
	}
	if c.version.Load() == 0 { // there never was a registration
		return nil
	}
	if err := mayWait(""); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.registered {
		if !slices.ContainsFunc(k.at[:k.used], r.at.overlaps) {
			continue
		}
		if r.uses == nil {
			var err error
			if r.uses, err = safe.NewResource(c.x, r.begin); err != nil {
				return err
			}
		}
		b.uses = append(b.uses, r.uses.Arg())
	}
	return nil
}

// version changes when list may list something else.
func (b *batch) version() (sum uint64) {
	for _, c := range b.cores {
		sum += c.version.Load()
	}
	return sum
}

// errStale is returned by pass if list must list again.
var errStale = errors.New("a registration has come or gone")

// enqueueAll lists and enqueues the operations, again if a registration comes or goes
// meanwhile.
func (b *batch) enqueueAll() error {
	for b.passed = false; ; {
		err := b.list()
		if err == nil {
			err = b.enqueueListed()
		}
		if b.passed || b.listed == b.version() {
			return err
		}
	}
}
