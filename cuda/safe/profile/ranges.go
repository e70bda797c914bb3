package profile

import (
	"context"
	"errors"
	"runtime"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/internal/nvtx"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Who wants to know of ranges.
const (
	isRecording uint32 = 1 << iota
	hasTool            // that NVTX_INJECTION64_PATH names
)

var active atomic.Uint32

// mostOpen is how many ranges may be open in a recording: each may hold a thread, and Go allows 10,000.
const mostOpen = 4096

func init() {
	if nvtx.Wanted() {
		active.Or(hasTool)
	}
}

// A Range is a part of the program between [Begin] and [Range.End]. The zero Range is none.
type Range struct{ s *state }

type state struct {
	name   string
	start  int64
	of     *Recording
	thread uint32
	locked bool
	tool   bool
	ended  bool
	region *trace.Region
	task   *trace.Task
}

// Begin begins a range. End it on the same goroutine; ranges inside it end before. During a recording, and under a tool
// such as Nsight Systems, the goroutine stays on its thread until End, because calls are attributed by thread.
// Goroutines that start in between need ranges of their own. While runtime/trace is on, the range is also a region of
// ctx's task there. Otherwise Begin and End take about 3 ns. A recording has 4096 open ranges at most, since Go ends
// programs with too many threads; further ones are counted in Timeline.Lost.
func Begin(ctx context.Context, name string) Range {
	a := active.Load()
	if a == 0 && !trace.IsEnabled() {
		return Range{}
	}
	return begin(ctx, nil, name, a)
}

// BeginTask begins a range as [Begin] does, with a task of runtime/trace in place of a region: pass the new context on,
// so that ranges of other goroutines belong to the task, too.
func BeginTask(ctx context.Context, name string) (context.Context, Range) {
	a := active.Load()
	if ctx == nil || !trace.IsEnabled() {
		if a == 0 {
			return ctx, Range{}
		}
		return ctx, begin(ctx, nil, name, a)
	}
	ctx, task := trace.NewTask(ctx, name)
	return ctx, begin(ctx, task, name, a)
}

func begin(ctx context.Context, task *trace.Task, name string, a uint32) Range {
	r := &state{name: name, task: task}
	if task == nil && ctx != nil && trace.IsEnabled() {
		r.region = trace.StartRegion(ctx, name)
	}
	if a == 0 {
		return Range{r}
	}
	if r.of = recording.Load(); r.of != nil && r.of.open.Add(1) > mostOpen && a&hasTool == 0 {
		r.of.open.Add(-1)
		r.of.add(func(t *Timeline) { t.Lost++ })
		return Range{r}
	}
	runtime.LockOSThread()
	r.locked = true
	if a&hasTool != 0 {
		if r.tool = nvtx.Push(name); !r.tool { // its library does not load
			active.And(^hasTool)
		}
	}
	if r.of != nil {
		r.thread = uint32(rt.Thread())
	}
	r.start = int64(time.Since(base))
	return Range{r}
}

// End ends the range. A second End does nothing.
func (r Range) End() {
	if r.s != nil && !r.s.ended {
		r.s.ended = true
		r.s.end()
	}
}

func (r *state) end() {
	if r.locked {
		if r.of != nil {
			r.of.open.Add(-1)
			span := Span{Name: r.name, Start: time.Duration(r.start), End: time.Since(base), Thread: r.thread}
			r.of.add(func(t *Timeline) {
				if r.of.room() {
					t.ranges.add(span)
				} else {
					t.Lost++
				}
			})
		}
		if r.tool {
			nvtx.Pop()
		}
		runtime.UnlockOSThread()
	}
	if r.region != nil {
		r.region.End()
	}
	if r.task != nil {
		r.task.End()
	}
}

// tellWait takes the waits of package safe into the recording.
var tellWait = func(op string, begin time.Time, thread int) {
	r := recording.Load()
	if r == nil || op == "" || begin.Before(r.started) { // "": a part of a wait
		return
	}
	w := Wait{Name: op, Start: begin.Sub(base), End: time.Since(base), thread: uint32(thread)}
	r.add(func(t *Timeline) {
		if r.room() {
			t.waits.add(w)
		} else {
			t.Lost++
		}
	})
}

// names are the streams that have names, for recordings that come later.
var names streamNames

type streamNames struct {
	mu  sync.Mutex
	all map[weak.Pointer[safe.Stream]]string
}

// NameStream names a stream on the timelines of this and later recordings, and for tools such as Nsight Systems.
// Source: cuptiGetContextId, cuptiGetStreamIdEx.
func NameStream(s *safe.Stream, name string) error {
	if s == nil || s.Raw() == 0 {
		return failed("NameStream", safe.ErrClosed)
	}
	nvtx.NameStream(uintptr(s.Raw()), name)
	names.set(s, name)
	starting.Lock() // CUPTI stays
	defer starting.Unlock()
	if r := recording.Load(); r != nil {
		if err := r.nameStream(s, name); err != nil {
			return failed("NameStream", err)
		}
	}
	return nil
}

func (n *streamNames) set(s *safe.Stream, name string) {
	key := weak.Make(s)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[weak.Pointer[safe.Stream]]string{}
	}
	if _, ok := n.all[key]; !ok {
		runtime.AddCleanup(s, n.forget, key)
	}
	n.all[key] = name
}

func (n *streamNames) forget(key weak.Pointer[safe.Stream]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, key)
}

// tell tells a recording the names of the streams that are open.
func (n *streamNames) tell(r *Recording) {
	n.mu.Lock()
	open := map[*safe.Stream]string{}
	for key, name := range n.all {
		if s := key.Value(); s != nil {
			open[s] = name
		}
	}
	n.mu.Unlock()
	for s, name := range open {
		_ = r.nameStream(s, name) // one that is closed meanwhile has no name
	}
}

func (r *Recording) nameStream(s *safe.Stream, name string) error {
	x, raw := s.Context(), s.Raw()
	if x == nil || raw == 0 { // CUPTI takes 0 for the legacy default stream
		return safe.ErrClosed
	}
	return x.WithCurrent(func() error {
		var k streamKey
		if err := errors.Join(cupti.CuptiGetContextId(x.Raw(), &k.context), cupti.CuptiGetStreamIdEx(x.Raw(), raw, 0, &k.stream)); err != nil {
			return err
		}
		r.add(func(t *Timeline) { t.streams[k] = name })
		return nil
	})
}

// NameThread names the thread of a goroutine that is locked to it, by runtime.LockOSThread or inside a range:
// on the timeline of the recording in progress, and for tools such as Nsight Systems.
func NameThread(name string) {
	id := uint32(rt.Thread())
	nvtx.NameThread(id, name)
	if r := recording.Load(); r != nil {
		r.add(func(t *Timeline) { t.threads[id] = name })
	}
}
