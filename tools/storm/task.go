//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A task is one goroutine of a program.
type task struct {
	*world
	index int
	rng   *rand.Rand // of the step
	lane  *lane
	own   *own
	after []func() error // what it has to do in the end, the last first
}

// n returns a random number below limit, or 0 if limit is 0.
func (t *task) n(limit int) int { return t.rng.IntN(max(limit, 1)) }

// yes returns true with the given probability in percent.
func (t *task) yes(percent int) bool { return t.rng.IntN(100) < percent }

// device returns a random device of the program.
func (t *task) device() *device { return t.devices[t.n(len(t.devices))] }

func (t *task) stream() *safe.Stream { return t.streams.get(t.rng) }

// deviceOf returns the device of s, whose kernels s can run.
func (t *task) deviceOf(s *safe.Stream) *device {
	for _, d := range t.devices {
		if d.x.Device() == s.Device() {
			return d
		}
	}
	return t.devices[0]
}

// put stores a new object in a slot, and closes or drops the previous one.
func put[T any](t *task, s *slots[T], v *T, err error) error {
	if err != nil {
		return err
	}
	if old := s.swap(t.rng, v); old != nil && !t.yes(t.profile.drops) {
		return any(old).(closer).Close()
	}
	return nil
}

// captured records how a capture has ended: a capture that failed without an explanation is lost.
func (c *counts) captured(err error) error {
	c.captures.Add(1)
	if err == nil {
		return nil
	}
	why := err
	var e *safe.Error
	if errors.As(err, &e) {
		why = e.Err
	}
	c.mu.Lock()
	c.ended[why.Error()]++
	c.mu.Unlock()
	if errors.Is(err, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
		return failf(lost, "%v", err)
	}
	return err
}

// run runs a step.
func (t *task) run(i int, s step) (f *fault) {
	k := kinds[s.Kind]
	at := fmt.Sprintf("g%d s%d", t.index, i)
	t.lane.write("%s began %s %d", at, k.name, s.Seed)
	t.rng = rand.New(rand.NewPCG(s.Seed, 2))
	defer func() {
		if r := recover(); r != nil {
			f = &fault{panicked, k.name, at, fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	err := k.run(t)
	if err != nil {
		t.lane.write("%s ended %s: %v", at, k.name, err)
	} else {
		t.lane.write("%s ended %s", at, k.name)
	}
	t.counts.steps.Add(1)
	return t.judge(err, k, at)
}

// known matches faults to ignore; nil matches none.
var known *regexp.Regexp

// judge turns an unexplained error into a fault.
func (t *task) judge(err error, k *kind, at string) *fault {
	switch {
	case err != nil && known != nil && known.MatchString(err.Error()):
		return nil
	case err == nil || explained(err, k.allow) || t.gone.Load() && typed(err):
		return nil
	case t.gone.Load() && !typed(err):
		var f *fault
		if errors.As(err, &f) {
			return nil // the model does not know what there is
		}
	}
	return newFault(k.name, at, err)
}

// A run is the execution of a program.
type run struct {
	world    *world
	progress atomic.Int64
	first    atomic.Pointer[fault]
}

func (r *run) failed(f *fault) {
	if f != nil {
		r.first.CompareAndSwap(nil, f)
	}
}

// goroutine runs the steps of one goroutine until any step of the program fails.
func (r *run) goroutine(t *task, steps []step) {
	if t.profile.own {
		own, err := newOwn(t)
		if err != nil {
			r.failed(newFault("own", fmt.Sprintf("g%d", t.index), err))
			return
		}
		t.own = own
	}
	for i, s := range steps {
		if r.first.Load() != nil {
			break
		}
		r.failed(t.run(i, s))
		r.progress.Add(1)
	}
	t.rng = rand.New(rand.NewPCG(uint64(t.index), 3))
	end := kind{name: "end", run: (*task).end}
	at := fmt.Sprintf("g%d end", t.index)
	t.lane.write("%s began -", at)
	r.failed(t.judge(t.end(), &end, at))
	t.lane.write("%s ended -", at)
	r.progress.Add(1)
}

// end closes the goroutine's own objects.
func (t *task) end() error {
	var errs []error
	for i := len(t.after) - 1; i >= 0; i-- {
		errs = append(errs, t.after[i]())
	}
	if t.own != nil {
		errs = append(errs, t.own.close())
	}
	return errors.Join(errs...)
}

// play runs a program in this process.
func play(p *program, log *ring, watch func(*run) (stop func())) (*counts, *fault) {
	profile, noCache := profileNamed(p.Profile), ""
	if profile.uncached {
		noCache = "1"
	}
	os.Setenv("CUDABIND_NO_MEMORY_CACHE", noCache)
	w, err := newWorld(profile)
	if err != nil {
		return &counts{}, newFault("open", "-", err)
	}
	r := &run{world: w}
	stop := watch(r)
	defer stop()
	var all sync.WaitGroup
	for i, steps := range p.Goroutines {
		t := &task{world: w, index: i, lane: log.lane(i)}
		all.Go(func() { r.goroutine(t, steps) })
	}
	all.Wait()
	err = w.close()
	r.progress.Add(1)
	if !explained(err, nil) && !w.gone.Load() {
		r.failed(newFault("close", "-", err))
	}
	if r.first.Load() == nil && !w.profile.ends {
		r.failed(w.releases.check())
	}
	return &w.counts, r.first.Load()
}
