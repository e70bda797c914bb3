package safe

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// RawWork is work that a function enqueues on one of several streams: see [EnqueueRaw].
type RawWork struct {
	Stream *Stream
	// Uses lists the memory, textures, surfaces and resources that the work uses: buf.Arg() for
	// each.
	Uses []Arg
	// Waits says that the function may wait for other processes or other streams, as NCCL does in first operations.
	// Then the function must launch no graphs. While it waits, it holds up calls on its streams, but no destruction of
	// executables.
	Waits bool
	// Places is the most kernels, copies, memsets and graphs that the function enqueues on the stream. 0 counts as 30. The
	// whole call counts as its largest Places on each stream, or as the sum if two of its streams are one stream of CUDA,
	// but as 240 at most. [Kernel.Launch] says what happens when a stream is full.
	Places int
}

// places returns what the work on stream i of a call counts.
func (w *RawWork) places(op string, i int) (int, error) {
	switch n := w.Places; {
	case n < 0:
		return 0, refuse(op, ErrInvalidArgument, "stream %d: Places is %d", i, n)
	case n == 0:
		return rawPlaces, nil
	default:
		return min(n, mostOfCall), nil
	}
}

// EnqueueRaw calls f, which enqueues work on the stream by other means: functions of
// libraries such as cuBLAS, or of package driver. raw is the stream's handle. The goroutine
// stays on its thread during f, where the stream's context is current and the capture mode
// is RELAXED, so that f may allocate memory during captures. EnqueueRaw restores the thread
// and releases the stream even if f panics or ends its goroutine.
//
// uses lists the memory, textures and surfaces that the work uses: buf.Arg() for each, and other
// objects of the library as a [Resource]. As at [Kernel.Launch], they are retained until the work
// has completed, even if they are closed in the meantime, and synchronous copies wait for the
// work. In f, [Buffer.Raw] returns the address of memory in uses even if the memory is closed.
// Work on other streams does not wait: order streams by events.
//
// If the stream is capturing, the work of f becomes part of the graph, and the graph and
// its executables retain the objects in uses. Keep everything else that the work needs,
// such as a workspace of the library, as long as the graph. In f, [Stream.CaptureStatus]
// of s tells whether the work is captured.
//
// Until f returns, other calls on the stream wait, and its captures neither begin nor end.
// f must not
//
//   - call other functions of this package that need CUDA: they return [ErrInCallback];
//   - wait for such calls on other goroutines;
//   - begin or end a capture of the stream, or destroy it;
//   - use the legacy default stream, unless s is one, or wait for the whole context: use
//     [Context.WithoutCaptures] for calls of libraries that do.
//
// f may wait for work of the stream if no stream captures that work. A call counts as 30
// operations in the stream's queue: see [Kernel.Launch] on full streams. If f enqueues
// many more, CUDA may block in f until there is room, and other calls of the process with
// it: tell how many by [RawWork].Places, or split f.
//
// EnqueueRaw returns f's error as the Err of an [*Error]. It returns [ErrClosed] if the
// stream or an object in uses is closed, [ErrContextMismatch] if the stream's device has no
// access to memory in uses, and [ErrInvalidArgument] if uses contains a value; f is not
// called then.
//
// Source: cuCtxSetCurrent, cuThreadExchangeStreamCaptureMode, cuStreamIsCapturing.
func (s *Stream) EnqueueRaw(f func(raw driver.CUstream) error, uses ...Arg) error {
	const op = "Stream.EnqueueRaw"
	if f == nil {
		return noFunction(op)
	}
	return enqueueRaw(op, []RawWork{{Stream: s, Uses: uses}}, func() error { return f(s.core.raw) })
}

// EnqueueRaw calls f, which enqueues work on several streams by other means, such as a group of NCCL, which must stay
// on one thread. The rules are those of [Stream.EnqueueRaw]. The streams may belong to several devices. The context of
// the first one is current when f begins, and f may make others current. f gets the handles by [Stream.Raw], and may
// ask the first stream for its [Stream.CaptureStatus].
//
// It returns [ErrInvalidArgument] if there is no stream, and [ErrCapturing] if the streams take part in different
// captures.
func EnqueueRaw(f func() error, on ...RawWork) error { return enqueueRaw("EnqueueRaw", on, f) }

func enqueueRaw(op string, on []RawWork, f func() error) error {
	switch {
	case len(on) == 0:
		return refuse(op, ErrInvalidArgument, "no stream")
	case f == nil:
		return noFunction(op)
	}
	var room [8]*streamCore
	streams := room[:0]
	defer func() {
		for i := range streams {
			streams[i].Release()
		}
	}()
	for i := range on {
		c, err := on[i].Stream.acquire(op)
		if err != nil {
			return err
		}
		c.reveal()
		streams = append(streams, c)
	}
	return enqueueRawOn(op, on, streams, f)
}

// enqueueRawOn calls f while no other call uses the streams, which are acquired.
func enqueueRawOn(op string, on []RawWork, streams []*streamCore, f func() error) error {
	first := streams[0]
	if len(streams) > 1 {
		streams = inOrder(slices.Clone(streams))
	}
	a := admission{op: op, stream: streams[0], flags: enqueues}
	for i := range on {
		n, err := on[i].places(op, i)
		if err != nil {
			return err
		}
		if len(streams) < len(on) { // some are one stream of CUDA, which may take all
			n += a.places
		}
		a.places = min(max(a.places, n), mostOfCall)
		if on[i].Waits {
			a.flags |= waits
		}
	}
	if err := a.admitAll(streams); err != nil {
		return err
	}
	called := false
	defer func() { a.leaveAll(streams, called) }()
	return a.callRaw(on, first, func() error {
		called = true
		for _, s := range streams {
			if !a.captures(s) {
				s.released() // by f, perhaps
			}
		}
		return f()
	})
}

// callRaw calls f, unless the streams cannot use what it uses.
func (a *admission) callRaw(on []RawWork, first *streamCore, f func() error) error {
	for i := range on {
		if err := on[i].use(a.op, i, len(on), a.capture); err != nil {
			return err
		}
	}
	var room [16]*atomic.Int32
	lent := lend(room[:0], on)
	defer giveBackLent(lent)
	if a.flags&waits != 0 {
		return first.ctx.callForeign(a.op, first, f)
	}
	slot := executables.Slot(first.number) // a library may launch graphs
	if err := slot.Enter(&executables); err != nil {
		return wrap(a.op, err)
	}
	defer slot.Leave()
	return first.ctx.callForeign(a.op, first, f)
}

// lend makes the handles valid for f, also if the streams and the memory are closed now. It appends what it has counted
// to lent: f may write to the lists, and to the objects there.
func lend(lent []*atomic.Int32, on []RawWork) []*atomic.Int32 {
	for i := range on {
		lent = append(lent, &on[i].Stream.core.lent)
		for j := range on[i].Uses {
			lent = append(lent, &on[i].Uses[j].block().lent)
		}
	}
	for _, n := range lent {
		n.Add(1)
	}
	return lent
}

func giveBackLent(lent []*atomic.Int32) {
	for _, n := range lent {
		n.Add(-1)
	}
}

// use records the stream, whose mu is held, as a user of the objects in Uses.
func (w *RawWork) use(op string, i, n int, capture *capturing) error {
	s := w.Stream.core
	if err := s.unseen(op); err != nil {
		return err
	}
	bad := s.reachesAll(w.Uses, capture)
	if bad < 0 {
		return nil
	}
	what := fmt.Sprintf("use %d", bad)
	if n > 1 {
		what += fmt.Sprintf(" of stream %d", i)
	}
	return badUse(op, what, s.ctx.device, &w.Uses[bad])
}
