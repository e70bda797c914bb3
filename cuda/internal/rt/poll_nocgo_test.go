//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestInterval: the intervals are those of the C of builds with cgo.
func TestInterval(t *testing.T) {
	const µs, ms = 1000, 1000 * 1000
	for _, test := range []struct {
		name                     string
		since, expected, t, want int64
	}{
		{"at first", 5, 0, 5, 10 * µs},
		{"a share of the time waited", 0, 0, 32 * ms, 1 * ms},
		{"the longest, up to a common time", 0, 0, 99*ms + 3, 2*ms - (ms + 3)},
		{"close to the expected end", 0, 10 * ms, 10*ms - 49*µs, 10 * µs},
		{"shortly after the expected end", 0, 10 * ms, 10*ms + 49*µs, 10 * µs},
		{"not beyond the expected end", 0, 10 * ms, 9800 * µs, 150 * µs},
		{"long after the expected end", 0, 1 * ms, 3200 * µs, 100 * µs},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := Entry{Since: test.since, Expected: test.expected}
			assert.Equal(t, test.want, e.interval(test.t))
		})
	}
}

// TestSparse: how often Await queries before it spins.
func TestSparse(t *testing.T) {
	const µs = 1000
	for _, test := range []struct {
		name     string
		at, want int64 // of 2 ms
	}{
		{"at first", 0, 40 * µs},
		{"a share of the time waited", 800 * µs, 100 * µs},
		{"not beyond the spin", 1900 * µs, 70 * µs},
		{"close to the expected end", 1970 * µs, 0},
		{"after it", 2010 * µs, -40 * µs},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, sparse(test.at, 2000*µs-test.at))
		})
	}
}

func TestNap(t *testing.T) {
	var a Alarm
	start := time.Now()
	a.nap(a.Seen(), int64(20*time.Millisecond))
	assert.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond, "no goroutine has called Wake")

	seen := a.Seen()
	a.Wake()
	start = time.Now()
	a.nap(seen, int64(time.Hour))
	assert.Less(t, time.Since(start), time.Minute, "Wake was called before")

	seen = a.Seen() // before Wake, however late this goroutine runs
	time.AfterFunc(20*time.Millisecond, a.Wake)
	a.nap(seen, int64(time.Hour))
	assert.Less(t, time.Since(start), time.Minute, "Wake was called meanwhile")
}

// TestInCallback: marks belong to a thread, and count.
func TestInCallback(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	other := func() bool {
		c := make(chan bool)
		go func() { c <- InCallback() }()
		return <-c
	}
	assert.False(t, InCallback())
	mark()
	mark()
	unmark()
	assert.True(t, InCallback())
	assert.False(t, other(), "on another thread")
	var s Scope
	assert.Equal(t, CodeCallback, s.begin(&list{}))
	unmark()
	assert.False(t, InCallback())
	assert.Empty(t, marked.threads)
}

// TestInCallbackElsewhere: a goroutine does not take the mark of another for its own, though it moves between threads.
func TestInCallbackElsewhere(t *testing.T) {
	var all sync.WaitGroup
	var stop atomic.Bool
	var wrong atomic.Int64
	for range 8 {
		all.Go(func() { // as a function of the program's own calls
			for !stop.Load() {
				runtime.LockOSThread()
				mark()
				runtime.Gosched()
				unmark()
				runtime.UnlockOSThread()
				runtime.Gosched()
			}
		})
		all.Go(func() {
			for !stop.Load() {
				if InCallback() {
					wrong.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	stop.Store(true)
	all.Wait()
	assert.Zero(t, wrong.Load())
}
