//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFinishEdges: what has no times, or was over before the recording, is left out, and nothing begins before it.
func TestFinishEdges(t *testing.T) {
	var tl Timeline
	for _, at := range [][2]time.Duration{{0, 0}, {0, 1500}, {700, 0}, {500, 900}, {900, 1200}, {1300, 1400}} {
		tl.work.add(Work{Start: at[0], End: at[1]})
		tl.calls.add(Call{Start: at[0], End: at[1]})
	}
	tl.finish(&clock{start: 1000})
	times := func(n int, of func(i int) (time.Duration, time.Duration)) (all [][2]time.Duration) {
		for i := range n {
			start, end := of(i)
			all = append(all, [2]time.Duration{start, end})
		}
		return all
	}
	want := [][2]time.Duration{{0, 200}, {300, 400}}
	assert.Equal(t, want, times(len(tl.Work), func(i int) (time.Duration, time.Duration) { return tl.Work[i].Start, tl.Work[i].End }))
	assert.Equal(t, want, times(len(tl.Calls), func(i int) (time.Duration, time.Duration) { return tl.Calls[i].Start, tl.Calls[i].End }))
}

// TestEndTwice: a second End of a range leaves the range around it as it is.
func TestEndTwice(t *testing.T) {
	needsDouble(t)
	r := start(t, Options{})
	outer := Begin(t.Context(), "outer")
	inner := Begin(t.Context(), "inner")
	inner.End()
	inner.End()
	work(doubleKernel, 7)
	outer.End()
	tl := stop(t, r)
	require.Len(t, tl.Ranges, 2)
	require.Len(t, tl.Work, 1)
	require.GreaterOrEqual(t, tl.Work[0].Range, 0)
	assert.Equal(t, "outer", tl.Ranges[tl.Work[0].Range].Name)
}

// TestLimitOfAll: the limit is one for records, ranges and waits.
func TestLimitOfAll(t *testing.T) {
	needsDouble(t)
	r := start(t, Options{Limit: 3})
	for range 5 {
		Begin(t.Context(), "range").End()
	}
	work(doubleKernel, 7)
	tl := stop(t, r)
	assert.Len(t, tl.Ranges, 3)
	assert.Empty(t, tl.Work)
	assert.Equal(t, 4, tl.Lost, "two ranges, a kernel and its launch")
}

// TestWorkInProgress: work without times is lost if it has completed, and left out if it has not.
func TestWorkInProgress(t *testing.T) {
	needsDouble(t)
	for _, row := range []struct {
		name string
		kind int
		lost int
	}{{"completed", doubleTimeless, 1}, {"in progress", doubleRunning, 0}} {
		t.Run(row.name, func(t *testing.T) {
			r := start(t, Options{})
			work(doubleKernel, 7)
			work(row.kind, 7)
			tl := stop(t, r)
			assert.Len(t, tl.Work, 1)
			assert.Equal(t, row.lost, tl.Lost)
		})
	}
}

// TestNameOfClosedStream: the name of a stream that is closed does not go to the legacy default stream.
func TestNameOfClosedStream(t *testing.T) {
	x, _ := open(t)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	require.NoError(t, errors.Join(NameStream(s, "closed"), s.Close()))
	r := start(t, Options{})
	assert.ErrorIs(t, r.nameStream(s, "closed"), safe.ErrClosed)
	assert.Empty(t, stop(t, r).streams)
}

// TestWaitFromBefore: a wait that began before the recording is left out.
func TestWaitFromBefore(t *testing.T) {
	begin := time.Now()
	r := start(t, Options{})
	tellWait("Stream.Wait", begin, 1)
	tellWait("Stream.Wait", time.Now(), 1)
	tl := stop(t, r)
	require.Len(t, tl.Waits, 1)
	assert.GreaterOrEqual(t, tl.Waits[0].Start, time.Duration(0))
}

// TestManyOpenRanges: a recording has a bounded number of open ranges, since each may hold a thread.
func TestManyOpenRanges(t *testing.T) {
	r := start(t, Options{})
	for range 2 { // those that have ended do not count
		var open []Range
		for range mostOpen + 3 {
			open = append(open, Begin(t.Context(), "range"))
		}
		for _, o := range slices.Backward(open) {
			o.End()
		}
	}
	tl := stop(t, r)
	assert.Len(t, tl.Ranges, 2*mostOpen)
	assert.Equal(t, 2*3, tl.Lost)
}

// TestClocksAreCompared: a recording compares the clocks while it lasts.
func TestClocksAreCompared(t *testing.T) {
	defer func(every time.Duration) { compareEvery = every }(compareEvery)
	compareEvery = 2 * time.Millisecond
	assert.Eventually(t, func() bool {
		r := start(t, Options{})
		time.Sleep(10 * time.Millisecond)
		stop(t, r)
		return len(r.clock.samples) > 2
	}, time.Minute, time.Millisecond)
}
