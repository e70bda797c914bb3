package safe

import (
	"fmt"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// chunkPlaces is the most work that a submission enqueues at once: little enough that the
// queue does not have to run empty before there is room.
const chunkPlaces = queueRoom / 4

// Submit enqueues the operations on s, in order, as the single calls do. Operations of other
// goroutines may come between them. Submit blocks while about 1,000 operations are pending
// on the stream. It allocates no Go memory.
//
// If an object of any operation is closed, Submit returns [ErrClosed] and enqueues nothing.
// If another operation fails, the ones before it stay enqueued and the ones after it are
// not. The error's Detail has the number and the kind of the operation. Submit returns
// [ErrContextMismatch] if s belongs to another context than the Batch.
//
// On a capturing stream, the operations become part of the graph. Graph launches and copies
// between devices cannot be captured: they return [ErrCapturing].
func (b *Batch) Submit(s *Stream) error {
	const op = opSubmit
	if b.none() {
		return &Error{Op: op, Err: ErrClosed}
	}
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	if !b.ctx.same(sc.ctx) {
		return refuse(op, ErrContextMismatch, "the batch belongs to a context of %v, the stream to one of %v", b.ctx.device, sc.ctx.device)
	}
	r := submission{streamCore: sc}
	reading, err := b.read(&r)
	if err != nil {
		return err
	}
	defer b.doneReading(reading)
	defer r.release(len(r.list.objects))
	return r.run() // with one return more, deferred calls would take longer
}

const opSubmit = "Batch.Submit"

// read gives a submission the list, until doneReading, and acquires its objects, before Reset
// can close some.
func (b *Batch) read(r *submission) (reading *int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stale {
		b.compact()
	}
	r.list = b.list
	if err := r.acquire(); err != nil {
		return nil, err
	}
	*b.reading++
	return b.reading, nil
}

func (b *Batch) doneReading(reading *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*reading--
}

// A submission is a call of Submit. Its objects are acquired.
type submission struct {
	*streamCore
	list     batchList
	noted    bool
	captured bool         // the stream captures: operations are enqueued one by one
	execs    [4]*execCore // locked
	locked   int
}

// acquire acquires all objects, or none.
func (r *submission) acquire() error {
	for i := range r.list.objects {
		o := &r.list.objects[i]
		if !o.handle.Acquire() {
			r.release(i)
			return r.at(int(o.first), refuse(opSubmit, ErrClosed, "its %s", o.handle.Object().Kind()))
		}
	}
	return nil
}

// check refuses memory that the stream's device cannot access.
func (r *submission) check() error {
	for i := range r.list.objects {
		o := &r.list.objects[i]
		if o.block == nil {
			continue
		}
		if o.reach && !r.ctx.mayUse(o.block) {
			return r.at(int(o.first), refuse(opSubmit, ErrContextMismatch, "memory of %v; the stream's device has no access to it", o.block.ctx.device))
		}
	}
	return nil
}

func (r *submission) release(n int) {
	for i := range r.list.objects[:n] {
		r.list.objects[i].handle.Release()
	}
}

func (r *submission) run() error {
	if err := r.check(); err != nil {
		return err
	}
	for n := 0; n < len(r.list.ops); {
		if !r.captured && !r.list.ops[n].alone {
			done, err := r.chunk(n)
			if n += done; err != nil {
				return r.at(n, err)
			}
			if done > 0 {
				continue
			}
		}
		err := r.single(n)
		for tries := 0; r.list.ops[n].kind == batchLaunch && makeRoom(err, tries); tries++ {
			err = r.single(n)
		}
		if err != nil {
			return r.at(n, err)
		}
		n++
	}
	return nil
}

// at adds the number and the kind of an operation to its error.
func (r *submission) at(n int, err error) error {
	return placed(opSubmit, fmt.Sprintf("operation %d, a %s", n, batchKinds[r.list.ops[n].kind]), err)
}

// chunk enqueues operations from n on, as many as fit, with one crossing. It returns how
// many. It enqueues none without an error if the first needs a call of its own: because the
// stream captures, or because of the state of an event or an executable.
func (r *submission) chunk(n int) (done int, err error) {
	end, places := r.fit(n)
	a := admission{op: opSubmit, stream: r.streamCore, flags: enqueues, places: places}
	if err := a.admit(); err != nil {
		return 0, err
	}
	if a.capture != nil {
		a.leave(true)
		r.captured = true
		return 0, nil
	}
	r.note()
	end = r.hold(n, end)
	code := driver.CUDA_SUCCESS
	if end > n {
		code, done = r.call(n, end-n, true)
	}
	r.letGo(n, end, done)
	for i := range r.list.ops[n : n+done] {
		places -= int(r.list.ops[n+i].places)
	}
	r.giveBack(places)
	a.leave(true)
	switch {
	case code == rt.CodeCapturing: // in a capture that this package did not begin
		r.captured = true
		return done, nil
	case code == driver.CUDA_ERROR_OUT_OF_MEMORY && r.list.ops[n+done].takesMemory():
		return done, nil // a single call makes room
	}
	return done, r.failed(n+done, code)
}

// fit returns the end of a chunk that begins with operation n, and its work.
func (r *submission) fit(n int) (end, places int) {
	ops := r.list.ops
	if r.list.special == 0 {
		end = min(n+chunkPlaces, len(ops))
		return end, end - n
	}
	for end = n; end < len(ops) && !ops[end].alone; end++ {
		more := int(ops[end].places)
		if end > n && places+more > chunkPlaces {
			break
		}
		places += more
	}
	return end, places
}

// note records the stream as a user of the objects. mu is held.
func (r *submission) note() {
	if r.noted {
		return
	}
	r.noted = true
	for i := range r.list.objects {
		switch o := &r.list.objects[i]; {
		case o.block != nil:
			o.block.note(r.streamCore)
		case o.host != nil:
			o.host.uses.note(r.streamCore)
		}
	}
}

// object returns the first object of an operation.
func (r *submission) object(n int) *batchObject {
	return &r.list.objects[r.list.refs[r.list.ops[n].from]]
}

// hold enters the gates of the events and locks the executables of operations from n on,
// until letGo. It returns the first operation for which it would have to wait, or end.
func (r *submission) hold(n, end int) int {
	if r.list.special == 0 {
		return end
	}
	for i := n; i < end; i++ {
		held := true
		switch o := r.object(i); r.list.ops[i].kind {
		case batchRecord:
			held = o.event.gate.Enter()
		case batchWait:
			held = r.enterWait(o.event)
		case batchGraph:
			held = r.lockExec(o.exec)
		}
		if !held {
			return i
		}
	}
	return end
}

// enterWait admits a wait for an event until leaveWait.
func (r *submission) enterWait(e *eventCore) bool {
	return e.gate.Enter()
}

func (r *submission) leaveWait(e *eventCore) {
	e.gate.Leave()
}

func (r *submission) lockExec(e *execCore) bool {
	if slices.Contains(r.execs[:r.locked], e) {
		return true
	}
	if r.locked == len(r.execs) || !e.mu.TryLock() {
		return false
	}
	if len(e.addresses) > 0 { // a single call waits for releases, and for launches with the same memory
		e.mu.Unlock()
		return false
	}
	slot := executables.Slot(r.streamCore.number)
	if r.locked == 0 && slot.Enter(&executables) != nil {
		e.mu.Unlock()
		return false
	}
	if e.unrevoked(opSubmit) != nil { // a single call returns the error
		if r.locked == 0 {
			slot.Leave()
		}
		e.mu.Unlock()
		return false
	}
	r.execs[r.locked] = e
	r.locked++
	e.note(r.streamCore)
	return true
}

// letGo undoes hold. The first operations, done of them, have succeeded.
func (r *submission) letGo(n, end, done int) {
	if r.list.special == 0 {
		return
	}
	for i := n; i < end; i++ {
		o, ok := r.object(i), i < n+done
		switch r.list.ops[i].kind {
		case batchRecord:
			if ok && !o.event.recorded.Load() {
				o.event.recorded.Store(true)
			}
			o.event.gate.Leave()
		case batchWait:
			r.leaveWait(o.event)
		}
	}
	if r.locked > 0 {
		executables.Slot(r.streamCore.number).Leave()
	}
	for ; r.locked > 0; r.locked-- {
		r.execs[r.locked-1].mu.Unlock()
		r.execs[r.locked-1] = nil
	}
}

// single enqueues operation n as a single call does. It uses the acquired objects: the user may
// have closed them since.
func (r *submission) single(n int) error {
	o := &r.list.ops[n]
	switch o.kind {
	case batchRecord:
		return r.record(opSubmit, r.object(n).event, 0)
	case batchWait:
		return r.waitFor(opSubmit, r.object(n).event, 0)
	case batchGraph:
		return r.object(n).exec.launch(opSubmit, r.streamCore)
	case batchHost:
		h := r.object(n).user.(*hostCall)
		_, err := r.launchHostFunc(opSubmit, h.f)
		return err
	}
	a := admission{op: opSubmit, stream: r.streamCore, flags: enqueues, places: int(o.places)}
	if err := a.admit(); err != nil {
		return err
	}
	err := r.singleAdmitted(n, a.capture)
	a.leave(err == nil)
	return err
}

// singleAdmitted enqueues operation n, which has only memory for objects, in a call that is admitted; capture is
// the admission's.
func (r *submission) singleAdmitted(n int, capture *capturing) error {
	o := &r.list.ops[n]
	if o.uncapturable && (capture != nil || r.capturing()) {
		return refuse(opSubmit, ErrCapturing, peerUncapturable)
	}
	for _, i := range r.list.refs[o.from:o.to] {
		object := &r.list.objects[i]
		if b := object.block; b != nil {
			b.note(r.streamCore)
			if !b.usableIn(capture) {
				return b.unusable(opSubmit)
			}
		}
		capture.retainsAcquired(object.handle)
	}
	code, _ := r.call(n, 1, false)
	return r.failed(n, code)
}

// call calls the driver for count operations from n on, and returns how many it has done.
func (r *submission) call(n, count int, chunk bool) (code driver.CUresult, done int) {
	if r.list.across {
		err := peerCopies.With(r.number, func() error {
			code, done = r.callDriver(n, count, chunk)
			return nil
		})
		if err != nil {
			code, done = rt.CodeCallback, 0
		}
	} else {
		code, done = r.callDriver(n, count, chunk)
	}
	return code, done
}

func (r *submission) callDriver(n, count int, chunk bool) (code driver.CUresult, done int) {
	return rt.Batch(r.callFor(), r.raw, r.list.words[r.list.ops[n].word:], count, chunk)
}

// callFor returns the context to make current.
func (r *submission) callFor() driver.CUcontext {
	if r.list.current {
		return r.ctx.raw
	}
	return r.callContext
}

// failed returns the error for the code of operation n.
func (r *submission) failed(n int, code driver.CUresult) error {
	if code == 0 {
		return nil
	}
	o := &r.list.ops[n]
	if o.kind != batchLaunch {
		return failed(opSubmit, code)
	}
	c := rt.LaunchConfig(r.list.words[o.word:])
	return o.kernel.refused(failed(opSubmit, code), &LaunchConfig{
		Grid: Dim{c.GridDimX, c.GridDimY, c.GridDimZ}, Block: Dim{c.BlockDimX, c.BlockDimY, c.BlockDimZ}, SharedBytes: c.SharedMemBytes,
	})
}
