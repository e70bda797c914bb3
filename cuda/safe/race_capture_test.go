//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures begin, are joined and end, in every mode, while other goroutines make one kind
// of call. No capture is invalidated or captures foreign work, calls return only the
// errors in the table, and nothing crashes or hangs. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An arena has the streams and events on which captures and calls race.
type arena struct {
	t        *testing.T
	x        *safe.Context
	origin   *safe.Stream // captures, again and again
	lent     *safe.Stream // borrowed from it
	side     *safe.Stream // joins each capture
	other    *safe.Stream // never captures
	legacy   *safe.Stream
	fork     *safe.Event // lets side join
	join     *safe.Event // lets origin wait for side
	inside   *safe.Event // recorded in each capture
	recorded *safe.Event // on other, before all captures
	y, z     *safe.Buffer[int32]
	green    *safe.GreenContext // of origin and side, or nil
	nothing  *safe.Kernel
	captures int
}

// arenaOptions select the streams that capture.
type arenaOptions struct{ blocking, green bool }

func newArena(t *testing.T, o arenaOptions) *arena {
	t.Helper()
	x := open(t, 0)
	a := &arena{t: t, x: x, other: stream(t, x), fork: event(t, x), join: event(t, x), inside: event(t, x), recorded: event(t, x)}
	switch {
	case o.green:
		a.green = green(t, x, splitInto(t, 1)...)
		a.origin, a.side = greenStream(t, a.green), greenStream(t, a.green)
	case o.blocking:
		a.origin, a.side = blockingStream(t, x), blockingStream(t, x)
	default:
		a.origin, a.side = stream(t, x), stream(t, x)
	}
	var err error
	a.legacy, err = safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, a.legacy)
	a.lent, err = a.origin.Borrow()
	require.NoError(t, err)
	closing(t, a.lent)
	a.y, a.z, a.nothing = buffer[int32](t, x, 64), buffer[int32](t, x, 64), kernel(t, x, "nothing")
	require.NoError(t, a.other.Record(a.recorded))
	require.NoError(t, a.nothing.Launch(a.other, one)) // loads it
	require.NoError(t, a.other.Synchronize())
	return a
}

// nodesOfCapture is the number of nodes that captured adds.
const nodesOfCapture = 3

// captured is the work of each capture: it sets y and z to v.
func (a *arena) captured(v int32) error {
	return first(
		func() error { return a.y.FillAsync(a.origin, v) },
		func() error { return a.origin.Record(a.fork) },
		func() error { return a.side.WaitEvent(a.fork) },
		func() error { return a.z.FillAsync(a.side, v) },
		func() error { return a.side.Record(a.join) },
		func() error { return a.origin.WaitEvent(a.join) },
		func() error { return except(a.origin.Record(a.inside), safe.ErrCapturing) }, // during a wait for it
		func() error { return a.nothing.Launch(a.origin, one) },
	)
}

// replays launches the captured graph and checks what it wrote.
func (a *arena) replays(g *safe.Graph, v int32) error {
	e, err := g.Instantiate()
	if err != nil {
		return err
	}
	defer e.Close()
	if err := errors.Join(e.Launch(a.other), a.other.Synchronize()); err != nil {
		return err
	}
	for _, b := range []*safe.Buffer[int32]{a.y, a.z} {
		got := make([]int32, 64)
		if err := a.other.Scope(func(c *safe.Scope) error { return safe.CopyToSlice(c, got, b) }); err != nil {
			return err
		}
		if got[0] != v || got[63] != v {
			return fmt.Errorf("the graph has written %d and %d, not %d", got[0], got[63], v)
		}
	}
	return nil
}

// capture captures once. extra allows work of other goroutines in the graph.
func (a *arena) capture(mode safe.CaptureMode, extra bool) error {
	a.captures++
	v := int32(a.captures)
	g, err := a.origin.CaptureWith(context.Background(), safe.CaptureOptions{Mode: mode}, func() error { return a.captured(v) })
	if err != nil {
		return err
	}
	defer g.Close()
	if a.captures%8 != 1 {
		return nil
	}
	nodes, err := g.Nodes()
	switch {
	case err != nil:
		return err
	case len(nodes) < nodesOfCapture || len(nodes) > nodesOfCapture && !extra:
		return fmt.Errorf("the graph has %d nodes, not %d", len(nodes), nodesOfCapture)
	}
	return a.replays(g, v)
}

// race captures while n goroutines make each of the calls.
func (a *arena) race(n int, extra bool, ends []error, calls ...func() error) {
	t := a.t
	t.Helper()
	var c racers
	for _, call := range calls {
		c.add(n, call)
	}
	lost, badly, longest := 0, error(nil), time.Duration(0)
	for end := time.Now().Add(stormTime(t)); time.Now().Before(end) && !c.stop.Load(); {
		mode, begun := factModes[a.captures%len(factModes)].own, time.Now()
		if err := a.capture(mode, extra); except(err, ends...) != nil {
			lost++
			badly = errors.Join(badly, fmt.Errorf("in mode %v: %w", mode, err))
			if lost == 3 {
				break
			}
		}
		longest = max(longest, time.Since(begun))
	}
	assert.NoError(t, c.end(), "a call")
	assert.NoError(t, badly, "%d of %d captures, beside %d calls", lost, a.captures, c.calls.Load())
	assert.Less(t, longest, atOnce, "a capture is starved by %d calls", c.calls.Load())
	for _, s := range []*safe.Stream{a.origin, a.side, a.other, a.legacy} {
		assert.NoError(t, s.Synchronize(), "after all captures")
	}
	noViolation(t)
}

// A streamCall is a call on streams that capture.
type streamCall struct {
	name    string
	make    func(a *arena, s *safe.Stream) func() error
	allowed []error // besides nil
	extra   bool    // it may become part of the graph
}

// A raceTarget has the streams on which calls are made.
type raceTarget struct {
	name    string
	options arenaOptions
	streams func(a *arena) []*safe.Stream
}

var raceTargets = []raceTarget{
	{"own", arenaOptions{}, func(a *arena) []*safe.Stream { return []*safe.Stream{a.origin, a.lent} }},
	{"joined", arenaOptions{}, func(a *arena) []*safe.Stream { return []*safe.Stream{a.side} }},
	{"legacy", arenaOptions{blocking: true}, func(a *arena) []*safe.Stream { return []*safe.Stream{a.legacy} }},
}

// TestCaptureRaces races every call of the table with captures on the same stream, a
// borrowed one, one that joins, and the legacy stream.
func TestCaptureRaces(t *testing.T) {
	for _, row := range streamCalls() {
		t.Run(row.name, func(t *testing.T) {
			for _, where := range raceTargets {
				t.Run(where.name, func(t *testing.T) { row.race(t, where) })
			}
		})
	}
}

func (row streamCall) race(t *testing.T, where raceTarget) {
	watch(t)
	a := newArena(t, where.options)
	var ends []error
	if row.extra && where.name == "joined" { // work that comes after the side has come back
		ends = []error{driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED}
	}
	var calls []func() error
	for _, s := range where.streams(a) {
		f := row.make(a, s)
		if f == nil {
			t.Skip("not a call for this stream")
		}
		calls = append(calls, func() error {
			err := except(f(), row.allowed...)
			if err != nil {
				err = fmt.Errorf("%s: %w", where.name, err)
			}
			return err
		})
	}
	a.race(2, row.extra, ends, calls...)
}
