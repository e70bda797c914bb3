package profile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/internal/activity"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
)

// ErrBusy is the error of [Start] while something records already: a recording of this package, or a
// tool such as Nsight Systems, Nsight Compute, compute-sanitizer or PyTorch's profiler.
var ErrBusy = errors.New("another profiler is attached to the process")

// defaultLimit is some 800 MB of records, at most.
const defaultLimit = 4_000_000

// Options are the options of [Start]. The zero value is for most programs.
type Options struct {
	// AllCalls records all calls of the driver and of the runtime, instead of those that enqueue
	// work, wait, allocate or load modules.
	AllCalls bool
	// Limit is how many records, ranges and waits are kept, 0 for 4 million, at 50 to 200 bytes each; Stop takes
	// as much again for a moment. Later ones are only counted, in Timeline.Lost. CUPTI's buffers take 64 MiB
	// more on the host, at most, and some MB on each device.
	Limit int
}

// A Recording is a recording in progress. A process has one at a time.
type Recording struct {
	o       Options
	session session
	clock   clock
	started time.Time
	stop    chan struct{}
	drained chan struct{}
	starved uint64 // before

	once sync.Once
	err  error // of Stop

	kept    atomic.Int64 // records, ranges and waits
	open    atomic.Int64 // ranges
	lost    int          // those of CUPTI's records that read has not kept
	flushed bool         // CUPTI has handed over all work that has completed

	mu    sync.Mutex // of t but for what drain adds, and of ended
	t     Timeline
	ended bool // t belongs to the user
}

// recording is the recording in progress, for ranges and waits.
var recording atomic.Pointer[Recording]

// starting is held by Start and Stop, and by who uses CUPTI between them.
var starting sync.Mutex

// Start begins to record the work of all devices. Work that was enqueued before may appear, too. It returns [ErrBusy]
// while another profiler is attached, and a [cupti.LibraryError] if CUPTI is missing. The first Start, and the first
// after [Detach], take 10 to 20 ms. Launches of graphs are recorded node by node. Source: cuptiSubscribe,
// cuptiActivityEnable.
func Start(o Options) (*Recording, error) {
	starting.Lock()
	defer starting.Unlock()
	if recording.Load() != nil {
		return nil, failed("Start", ErrBusy)
	}
	if o.Limit < 0 {
		return nil, &safe.Error{Op: "profile.Start", Err: safe.ErrInvalidArgument, Detail: fmt.Sprintf("the limit is %d", o.Limit)}
	}
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	r := &Recording{o: o, stop: make(chan struct{}), drained: make(chan struct{})}
	r.t.streams, r.t.threads = map[streamKey]string{}, map[uint32]string{}
	if err := r.begin(); err != nil {
		return nil, failed("Start", err)
	}
	go r.drain()
	recording.Store(r)
	admit.OnWait.Store(&tellWait)
	active.Or(isRecording)
	names.tell(r)
	return r, nil
}

// failed is an error of a function of this package.
func failed(function string, err error) error {
	return &safe.Error{Op: "profile." + function, Err: err}
}

func (r *Recording) begin() error {
	if _, _, err := cupti.Library(); err != nil {
		return rt.Simulated(err)
	}
	if err := activity.Open(activity.Most); err != nil {
		return err
	}
	discard()
	r.starved = activity.Starved()
	err := r.session.begin(r.o)
	attached = attached || r.session.subscriber != 0
	if err == nil {
		err = r.clock.compare()
	}
	if err != nil {
		if r.session.subscriber != 0 {
			_ = errors.Join(r.session.disable(), r.session.settle(), r.session.end())
		}
		return err
	}
	r.started = time.Now()
	return nil
}

// Stop ends the recording and returns it. Further calls return the same. Work that has not completed is left out, so
// wait for it before, as [github.com/cudabind/cudabind/cuda/safe.Stream.Wait] does. Stop takes some 20 ms, and 0.1 s
// with work in progress. CUPTI stays in the calls of CUDA: a launch takes about 0.9 µs more than before, until [Detach].
// Source: cuptiActivityDisable, cuptiActivityFlushAll, cuptiUnsubscribe.
func (r *Recording) Stop() (*Timeline, error) {
	if r == nil || r.stop == nil {
		return nil, failed("Recording.Stop", errors.New("the recording is none: use Start"))
	}
	r.once.Do(r.end)
	return &r.t, r.err
}

func (r *Recording) end() {
	wall := r.detach()
	r.mu.Lock()
	r.ended = true // nobody else adds to t after this
	r.mu.Unlock()
	t := &r.t
	t.Duration, t.Started = wall, r.started
	t.Lost += r.lost + int(r.session.dropped)
	if t.Lost == 0 { // records of a buffer that was not there, as far as CUPTI has not counted them
		t.Lost = int(activity.Starved() - r.starved)
	}
	r.clock.start = int64(r.started.Sub(base))
	t.finish(&r.clock)
}

// detach ends the session with CUPTI, and reads its last records.
func (r *Recording) detach() (wall time.Duration) {
	starting.Lock()
	defer starting.Unlock()
	recording.Store(nil)
	admit.OnWait.Store(nil)
	active.And(^isRecording)
	last, err := now()
	wall = time.Since(r.started)
	err = errors.Join(err, r.session.disable())
	close(r.stop)
	<-r.drained // it compares the clocks, too
	r.clock.add(last)
	err = errors.Join(err, r.session.settle())
	activity.Filled(r.read)
	r.flushed = true
	r.err = errors.Join(err, r.session.end())
	activity.Filled(r.read)
	return wall
}

// Detach takes CUPTI out of the calls of CUDA after a recording, so that they cost what they cost before. Call it only
// when no goroutine calls CUDA and no work is in progress: kernels that run meanwhile fail. A later [Start] attaches
// CUPTI again. Detach returns [ErrBusy] during a recording, and does nothing if nothing was recorded. Source:
// cuptiFinalize.
func Detach() error {
	starting.Lock()
	defer starting.Unlock()
	if recording.Load() != nil {
		return failed("Detach", ErrBusy)
	}
	if !attached {
		return nil
	}
	attached = false
	if err := cupti.CuptiFinalize(); err != nil {
		return failed("Detach", fmt.Errorf("cuptiFinalize: %w", err))
	}
	return nil
}

// attached tells whether CUPTI is in the calls of CUDA. starting is held.
var attached bool

// discard frees buffers that CUPTI filled after the end of a recording. What their records point to is gone.
func discard() { activity.Filled(func(unsafe.Pointer, uint64) {}) }

// compareEvery is the time between comparisons of the clocks.
var compareEvery = time.Second

// drain reads filled buffers and compares the clocks until the recording has stopped.
func (r *Recording) drain() {
	defer close(r.drained)
	tick, clocks := time.NewTicker(10*time.Millisecond), time.NewTicker(compareEvery)
	defer tick.Stop()
	defer clocks.Stop()
	for {
		select {
		case <-clocks.C:
			_ = r.clock.compare() // the others are good enough
		case <-tick.C:
			if activity.Scarce() {
				_ = cupti.CuptiActivityFlushAll(0)
			}
			activity.Filled(r.read)
		case <-r.stop:
			activity.Filled(r.read)
			return
		}
	}
}

// add calls f with the timeline, unless the recording has ended.
func (r *Recording) add(f func(t *Timeline)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		f(&r.t)
	}
}

// room returns whether one more record, range or wait is to be kept.
func (r *Recording) room() bool {
	if r.kept.Load() >= int64(r.o.Limit) {
		return false
	}
	r.kept.Add(1)
	return true
}
