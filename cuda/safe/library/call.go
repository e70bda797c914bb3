package library

import (
	"errors"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Place is where a call of a library works.
type Place struct {
	// Stream is the stream. The library gets it before each call, as a handle may have had
	// another one before.
	Stream driver.CUstream
	// Memory is a workspace of Size bytes, which belongs to this call in the order of the stream. In
	// a capture, it belongs to the graph.
	Memory driver.CUdeviceptr
	Size   uint64
	// Space is the number of the workspace, 0 for none. A number stands for one address and one
	// stream: a handle that has worked with it last need not be told them again.
	Space uint64
	// Handle is which of the Options.Handles this call has for itself.
	Handle int
	// Capture is the ID of the capture that the work becomes part of, 0 for none.
	Capture uint64
}

// Call is one call of a library. Programs that reuse Calls, for instance from a [sync.Pool], allocate nothing; others
// use [Object.Enqueue]. Only one goroutine at a time may use a Call.
type Call struct {
	Object *Object
	Stream *safe.Stream
	// Memory is the size of the workspace of Do in bytes.
	Memory int
	// Places is the most kernels, copies and memsets that the work consists of, 0 if that is not known: see
	// [safe.RawWork].
	Places int
	// Uses lists what the work uses, as [safe.Stream.EnqueueRaw] takes it.
	Uses []safe.Arg
	// Do enqueues the work: see [safe.Stream.EnqueueRaw] for what it may do. The Object is
	// locked.
	Do func(Place) error
	// NoHandle keeps the Object from being locked. Then Called may be called after Destroy.
	NoHandle bool
	// Prepare, which may be nil, returns calls of C functions that do all that Do would: see [safe.EnqueueCalls].
	// Outside captures, Prepare is called first; if it returns no calls, Do must enqueue the work. Called follows with
	// whether the calls were made, and returns the error. The Object is locked from Prepare to Called, and calls on
	// other streams may wait for it: neither function may wait, or use packages safe and library, except
	// [Object.Close].
	Prepare func(Place) []safe.RawCall
	Called  func(made bool) error

	prepare  func(driver.CUstream) []safe.RawCall
	prepared bool        // by Prepare, and not yet Called
	locked   *sync.Mutex // until Called, or nil

	core    *core        // of Object as Submit found it: the functions may change the fields above
	stream  *safe.Stream // Stream, likewise
	uses    []safe.Arg   // Uses, and what Submit adds: the room behind Uses may be others', too
	space   *workspace
	capture uint64 // in which space may be used
	raw     driver.CUstream
	moved   bool // the stream is in another capture, or in none
	enqueue func() error
	of      *Call // whose function enqueue is, and whose call is busy: not that of a copy
	busy    bool
}

// Enqueue calls f, which enqueues work on the stream that uses the Object, a workspace of size
// bytes, and uses.
//
// It returns f's error as the Err of a [safe.Error], [safe.ErrClosed] if the Object, the
// stream or something in uses is closed, and [safe.ErrContextMismatch] if the stream belongs
// to another context.
func (o *Object) Enqueue(s *safe.Stream, size int, f func(Place) error, uses ...safe.Arg) error {
	c := Call{Object: o, Stream: s, Memory: size, Uses: uses, Do: f}
	return Rename("library.Object.Enqueue", c.Submit())
}

// Reset clears all fields but the functions, and keeps the capacity of Uses. It does nothing while Submit runs.
func (c *Call) Reset() {
	if c == nil || c.of == c && c.busy {
		return
	}
	clear(c.Uses)
	c.Object, c.Stream, c.Memory, c.Places, c.Uses, c.NoHandle = nil, nil, 0, 0, c.Uses[:0], false
	c.core, c.stream, c.space = nil, nil, nil // in a copy from within Submit, which sets the rest
}

// Submit enqueues the work: see [Object.Enqueue]. Calls on one stream share a workspace, so they must stay in order. It
// returns [safe.ErrInUse] if the Call is submitted by its own function.
func (c *Call) Submit() error {
	if c == nil || c.Do == nil || c.Memory < 0 {
		return Refuse("", safe.ErrInvalidArgument, "Do is nil, or Memory is negative")
	}
	if (c.Prepare == nil) != (c.Called == nil) {
		return Refuse("", safe.ErrInvalidArgument, "there is one of Prepare and Called")
	}
	if c.of != c {
		c.of, c.enqueue, c.prepare, c.busy, c.uses = c, c.run, c.calls, false, nil
	}
	if c.busy {
		return Refuse("", safe.ErrInUse, "the Call is submitted by its own function")
	}
	if c.Object == nil || c.Object.core == nil || c.Object.core.Closed() {
		return safe.ErrClosed
	}
	c.busy = true
	defer c.end()
	core := c.Object.core
	if core.resource == nil { // which work retains
		if !core.Acquire() {
			return safe.ErrClosed
		}
		defer core.Release()
	}
	return c.submit(core)
}

// end is the end of Submit, after which the call keeps nothing alive.
func (c *Call) end() {
	c.busy, c.core, c.stream = false, nil, nil
	if c.of == c { // or Do has written another Call here, whose list this is
		clear(c.uses[:cap(c.uses)])
	}
}

// submit tries until the call has the memory of the capture that the stream is in.
func (c *Call) submit(core *core) error {
	c.core, c.stream = core, c.Stream
	if err := c.first(core); err != nil {
		return err
	}
	c.uses = append(c.uses[:0], c.Uses...)
	if core.resource != nil {
		c.uses = append(c.uses, core.resource.Arg())
	}
	for own := len(c.uses); ; {
		c.moved = false
		c.uses = c.uses[:own]
		err := c.try(core)
		if err != nil && core.Closed() && errors.Is(err, safe.ErrClosed) {
			return safe.ErrClosed // of the Object, not the number of a use that the caller has not listed
		}
		if !c.moved {
			return err
		}
		if err := c.move(core); err != nil {
			return err
		}
	}
}

// try enqueues the work with the memory of space, and gives that back, also if Do panics.
func (c *Call) try(core *core) (err error) {
	if space := c.space; space != nil {
		c.uses = append(c.uses, space.memory.Arg())
		defer func() {
			c.space = nil
			if done := space.put(); err == nil {
				err = done
			}
		}()
	}
	if c.Prepare != nil && c.capture == 0 && (c.Memory == 0 || c.space != nil) {
		if made, err := c.call(); made || err != nil {
			return err
		}
	}
	return safe.EnqueueRaw(c.enqueue, c.work())
}

func (c *Call) work() safe.RawWork {
	return safe.RawWork{Stream: c.stream, Uses: c.uses, Places: c.Places}
}

// call makes the calls that Prepare returns, if there are any.
func (c *Call) call() (made bool, err error) {
	made, err = safe.EnqueueCalls(c.work(), c.prepare)
	if !c.prepared {
		return made, err
	}
	locked := c.locked
	c.prepared, c.locked = false, nil
	defer unlock(locked)
	if failed := c.Called(made); failed != nil {
		err = failed
	}
	return made, err
}

// calls is called while the stream's captures neither begin nor end. It locks the Object if it returns calls.
func (c *Call) calls(raw driver.CUstream) (list []safe.RawCall) {
	if c.space != nil && c.space.raw != raw {
		return nil
	}
	p, locked := c.place(raw)
	defer func() {
		if c.prepared = len(list) > 0; c.prepared {
			c.locked = locked
		} else { // also if Prepare panics
			unlock(locked)
		}
	}()
	return c.Prepare(p)
}

// first finds memory to try first: what the stream had last.
func (c *Call) first(core *core) error {
	c.space, c.capture = nil, 0
	if c.Memory > 0 {
		if c.space = core.spaces.last(c.stream, c.Memory); c.space != nil {
			c.capture = c.space.capture
			return nil
		}
	}
	return c.Object.Matches(c.stream)
}

// move takes memory for the capture that the stream is in.
func (c *Call) move(core *core) (err error) {
	if c.Memory == 0 {
		return nil
	}
	if !core.Acquire() { // or the workspaces might end
		return safe.ErrClosed
	}
	defer core.Release()
	c.space, err = core.spaces.take(c.stream, c.raw, c.capture, c.Memory)
	if errors.Is(err, safe.ErrCapturing) && c.capture == 0 {
		c.space, err = nil, nil // it has begun meanwhile: ask again
	}
	return err
}

var errMoved = errors.New("the stream is in another capture")

// run is called while the stream's captures neither begin nor end.
func (c *Call) run() error {
	raw := c.stream.Raw()
	capture, err := c.captureOf(raw)
	if err != nil {
		return err
	}
	if c.Memory > 0 && (c.space == nil || capture != c.capture || c.space.raw != raw) {
		c.capture, c.raw, c.moved = capture, raw, true
		return errMoved
	}
	p, locked := c.place(raw)
	defer unlock(locked)
	p.Capture = capture
	return c.Do(p)
}

// place returns where the call works, and locks the Object until unlock.
func (c *Call) place(raw driver.CUstream) (p Place, locked *sync.Mutex) {
	p.Stream = raw
	if c.space != nil {
		p.Memory, p.Size, p.Space = c.space.address, c.space.size, c.space.number
	}
	if !c.NoHandle {
		p.Handle = c.core.lock(p.Space)
		locked = &c.core.handles[p.Handle]
	}
	return p, locked
}

func unlock(locked *sync.Mutex) {
	if locked != nil {
		locked.Unlock()
	}
}

// lock locks a handle, if possible the one that worked in a space last.
func (c *core) lock(space uint64) int {
	n := len(c.handles)
	if n == 1 {
		c.handles[0].Lock()
		return 0
	}
	first := int(space % uint64(n))
	for i := range n {
		if at := (first + i) % n; c.handles[at].TryLock() {
			return at
		}
	}
	c.handles[first].Lock()
	return first
}
