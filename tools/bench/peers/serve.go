package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cudabind/cudabind/internal/process"
)

// kernels are those of all contestants.
//
//go:embed kernels.ptx
var kernels []byte

const (
	largest = 64 << 20 // bytes, of the memory of each contestant
	queue   = 200      // operations that a stream gets before it is waited for: a full queue would block
	streams = 8        // of a pipeline
)

// item is what a contestant is asked to do.
type item struct {
	prepare func(arg int) func() // gets ready, and returns the operation
	queue   func(arg int) int    // operations between two waits for the device, nil for any number
}

// always is an item without an argument.
func always(f func()) item { return item{prepare: func(int) func() { return f }} }

// queued is an item that fills the queue of a stream.
func queued(f func()) item {
	return item{prepare: func(int) func() { return f }, queue: func(int) int { return queue }}
}

// lazily is an item that gets ready once.
func lazily(f func() func()) item {
	once := sync.OnceValue(f)
	return item{prepare: func(int) func() { return once() }}
}

// ours is a contestant in Go. Its functions panic if a call fails: serve reports that.
type ours struct {
	ready reply
	items map[string]item
	idle  func()       // waits for the device
	once  func(us int) // launches a kernel of so many microseconds, and waits; nil if it has none
	// worker is what each of w goroutines does: it launches a kernel of 500 µs and waits, reps
	// times. It comes with what closes all streams.
	worker func(w, reps int) (work func(i int), end func())
	check  func() bool // whether the last pipeline computed what it should

	rounds map[string]int // operations of a round, by item and argument
}

// reply is a line that a contestant answers with, as JSON. One of them says that it is ready.
type reply struct {
	Ready   string    `json:"ready,omitempty"` // name and version
	GPU     string    `json:"gpu,omitempty"`
	CUDA    string    `json:"cuda,omitempty"` // of the driver
	Absent  string    `json:"na,omitempty"`   // why there is no figure
	NS      float64   `json:"ns,omitempty"`   // of one operation
	Wrong   bool      `json:"wrong,omitempty"`
	Samples []float64 `json:"s,omitempty"`    // µs of each wait
	CPU     float64   `json:"cpu,omitempty"`  // µs of a wait, ms of all workers
	Wall    float64   `json:"wall,omitempty"` // ms of all workers
}

// serve answers one line for each line "ITEM ARGUMENT MILLISECONDS".
func (o *ours) serve(in io.Reader, out io.Writer) error {
	o.rounds = map[string]int{}
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(o.ready); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var name string
		var arg int
		ms := 20.0
		if n, _ := fmt.Sscan(lines.Text(), &name, &arg, &ms); n == 0 {
			continue
		}
		if err := encoder.Encode(o.answer(name, arg, ms)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (o *ours) answer(name string, arg int, ms float64) (r reply) {
	defer func() {
		if e := recover(); e != nil {
			r = reply{Absent: fmt.Sprint(e)}
		}
	}()
	switch it, ok := o.items[name]; {
	case ok:
		return o.measure(name, it, arg, ms)
	case name == "wait" && o.once != nil:
		return o.waits(arg)
	case name == "many" && o.worker != nil:
		return o.many(arg, int(ms))
	}
	return reply{Absent: none}
}

// none is the answer to an item that a contestant does not have.
const none = "none"

func (o *ours) measure(name string, it item, arg int, ms float64) reply {
	f, at := it.prepare(arg), 1<<30
	if it.queue != nil {
		at = it.queue(arg)
	}
	key := fmt.Sprint(name, " ", arg)
	n := o.rounds[key]
	if n == 0 {
		o.time(1, at, f) // can take milliseconds, to load a kernel or to fill a pool
		for n = 1; ; n *= 2 {
			t := float64(o.time(n, at, f)) / 1e6
			if t >= ms/4 || n >= 1<<22 {
				n = max(1, int(float64(n)*ms/t))
				break
			}
		}
		o.rounds[key] = n
	}
	o.time(n/8+1, at, f)
	r := reply{NS: float64(o.time(n, at, f)) / float64(n)}
	r.Wrong = strings.HasPrefix(name, "pipe") && !o.check()
	return r
}

// time is how long n operations take, without the waits for the device.
func (o *ours) time(n, at int, f func()) (total time.Duration) {
	for n > 0 {
		k := min(n, at)
		o.idle()
		start := time.Now()
		for range k {
			f()
		}
		total += time.Since(start)
		n -= k
	}
	o.idle()
	return total
}

func (o *ours) waits(us int) reply {
	n := 800
	switch {
	case us >= 2000:
		n = 40
	case us >= 200:
		n = 150
	}
	for range 3 {
		o.once(us)
	}
	r := reply{Samples: make([]float64, n)}
	cpu := process.CPUTime()
	for i := range r.Samples {
		start := time.Now()
		o.once(us)
		r.Samples[i] = float64(time.Since(start)) / 1e3
	}
	r.CPU = float64(process.CPUTime()-cpu) / 1e3 / float64(n)
	return r
}

// many has w goroutines begin at once.
func (o *ours) many(w, reps int) reply {
	work, end := o.worker(w, reps)
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for i := range w {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			ready.Done()
			<-gate
			work(i)
		}()
	}
	ready.Wait()
	cpu, start := process.CPUTime(), time.Now()
	close(gate)
	done.Wait()
	r := reply{Wall: float64(time.Since(start)) / 1e6, CPU: float64(process.CPUTime()-cpu) / 1e6}
	end()
	return r
}

// check panics if a call failed.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
