//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// childOptions are the options that a parent passes to its children.
type childOptions struct {
	log     string // of steps; says that this is a child
	program string // a file to run, else programs of seeds
	count   int
	time    time.Duration
	library string
	doubles string // a folder
}

func (c *childOptions) flags(f *flag.FlagSet) {
	f.StringVar(&c.log, "child-log", "", "for storm itself")
	f.StringVar(&c.program, "child-program", "", "for storm itself")
	f.IntVar(&c.count, "child-count", 1, "for storm itself")
	f.DurationVar(&c.time, "child-time", time.Hour, "for storm itself")
	f.StringVar(&c.library, "child-library", "", "for storm itself")
	f.StringVar(&c.doubles, "child-doubles", "", "for storm itself")
}

// A result is the outcome of a program: a child prints it as a line of JSON.
type result struct {
	Seed     uint64         `json:"seed"`
	Steps    int64          `json:"steps"`
	Captures int64          `json:"captures"`
	Ended    map[string]int `json:"ended,omitempty"`
	Fault    *fault         `json:"fault,omitempty"`
}

// A child is a process that runs programs until one fails.
type child struct {
	*options
	log *ring
	sim *sim.Control // nil on a GPU

	mu    sync.Mutex
	later error // the last unexplained error of safe.OnError
}

const (
	exitFailed = 1
	exitHang   = 3
)

func runChild(o *options) int {
	c := &child{options: o}
	if err := c.start(); err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		return 2
	}
	out := json.NewEncoder(os.Stdout)
	for i, end := 0, time.Now().Add(o.child.time); i < o.child.count && (i == 0 || time.Now().Before(end)); i++ {
		p, err := c.program(i)
		if err != nil {
			fmt.Fprintln(os.Stderr, "storm:", err)
			return 2
		}
		r := c.play(p)
		out.Encode(r)
		if r.Fault != nil {
			return exitFailed
		}
	}
	return 0
}

// start opens the driver.
func (c *child) start() (err error) {
	if c.log, err = openRing(c.child.log); err != nil {
		return err
	}
	if c.child.library != "" {
		if err := driver.Open(c.child.library); err != nil {
			return err
		}
		control, err := sim.Attach(c.child.library)
		if err != nil {
			return err
		}
		c.sim, simulated = &control, true
		if c.child.doubles != "" {
			if err := useDoubles(control, c.child.doubles); err != nil {
				return err
			}
		}
	}
	safe.OnError(func(err error) {
		if errors.As(err, new(*safe.SlowCallbackError)) {
			return // functions take long on a busy machine
		}
		// A dropped capture ends unjoined if a stream of another goroutine has joined it.
		if !explained(err, []error{driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED}) {
			c.mu.Lock()
			c.later = err
			c.mu.Unlock()
		}
	})
	if c.known != "" {
		known = regexp.MustCompile(c.known)
	}
	if c.gc {
		go func() {
			for {
				runtime.GC()
			}
		}()
	}
	return nil
}

func (c *child) program(i int) (*program, error) {
	if c.child.program != "" {
		return readProgram(c.child.program)
	}
	p := profileNamed(c.profile)
	if c.plant != "" {
		p = p.with("plant-" + c.plant)
	}
	return generate(p, c.seed+uint64(i)), nil
}

// play runs a program and then checks for leaks.
func (c *child) play(p *program) result {
	counts, f := play(p, c.log, c.watch)
	if f == nil && !profileNamed(p.Profile).ends {
		f = c.leftOver()
	}
	v := c.violation()
	switch {
	case v == "":
	case f == nil:
		f = &fault{violation, "", "-", v}
	default:
		f.Text += "; the simulated driver saw: " + v
	}
	counts.mu.Lock()
	defer counts.mu.Unlock()
	return result{p.Seed, counts.steps.Load(), counts.captures.Load(), counts.ended, f}
}

func (c *child) violation() string {
	if c.sim == nil {
		return ""
	}
	return c.sim.Violation()
}

// leftOver describes objects that are alive after all were closed, and errors of their release.
func (c *child) leftOver() *fault {
	if c.sim != nil && !settle(min(c.hang, 5*time.Second), func() bool { return c.sim.Live("") == 0 }) {
		return &fault{leak, "", "-", c.sim.List()}
	}
	if c.sim != nil {
		if n := c.sim.Lost(); n > 0 {
			return &fault{leak, "", "-", fmt.Sprintf("%d objects went with their context", n)}
		}
	}
	var open error
	if !settle(min(c.hang, 5*time.Second), func() bool { open = resetAll(); return open == nil }) {
		return &fault{leak, "", "-", open.Error()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.later; err != nil {
		c.later = nil
		return &fault{wrong, "later", "-", err.Error()}
	}
	return nil
}

// resetAll resets all devices, which fails while anything is open.
func resetAll() error {
	devices, err := safe.Devices()
	for _, d := range devices {
		err = errors.Join(err, d.ResetPrimary())
	}
	return err
}

// watch ends the process if no step ends for too long, after printing the stacks of all
// goroutines.
func (c *child) watch(r *run) (stop func()) {
	done := make(chan struct{})
	go func() {
		last, since := int64(-1), time.Now()
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if now := r.progress.Load(); now != last {
				last, since = now, time.Now()
			} else if time.Since(since) > c.hang {
				fmt.Fprintf(os.Stderr, "storm: no step ended for %v\n", c.hang)
				pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				os.Exit(exitHang)
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}
