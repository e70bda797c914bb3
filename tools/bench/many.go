package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/process"
)

// many are goroutines that have a stream each, on which they launch a kernel of
// 500 µs and wait for it, 50 times.
var many = group{
	name:    "many",
	columns: []string{"wall ms", "CPU ms", "threads", "wall/raw", "CPU/raw"},
	plot:    []string{"wall ms", "CPU ms", "threads"},
	run:     crowds,
}

// crowds does all that is safe first: the threads that the others make would be
// there for it as well.
func crowds(g *gpu, e effort) ([]*line, error) {
	sizes := []int{e.of(16, 2), e.of(128, 4), e.of(1024, 8)}
	streams, err := newStreams(g, sizes[len(sizes)-1])
	if err != nil {
		return nil, err
	}
	defer closeAll(streams)
	var both [2][]*line
	for i, way := range []struct {
		name string
		once func(*safe.Stream) error
	}{
		{"Stream.Synchronize", func(s *safe.Stream) error {
			if err := g.spin.Launch(s, one, safe.Val(halfMilli)); err != nil {
				return err
			}
			return s.Synchronize()
		}},
		{"raw CuStreamSynchronize", g.synchronizedRaw},
	} {
		for _, n := range sizes {
			l, err := crowd(g, e, streams[:n], way.once)
			if err != nil {
				return nil, fmt.Errorf("%d, %s: %w", n, way.name, err)
			}
			l.Case, l.Way = fmt.Sprintf("%d goroutines", n), way.name
			both[i] = append(both[i], l)
		}
	}
	var lines []*line
	for i, l := range both[0] {
		raw := both[1][i]
		for _, l := range []*line{raw, l} {
			l.ratio("wall/raw", "wall ms", raw)
			l.ratio("CPU/raw", "CPU ms", raw)
		}
		if sizes[i] >= 128 {
			l.atMost("wall/raw", 0.2)
			l.atMost("CPU/raw", 0.1)
			l.atMost("threads", float64(runtime.GOMAXPROCS(0)+8))
		}
		lines = append(lines, raw, l)
	}
	return lines, nil
}

// halfMilli is 500 µs, as the kernel gets it.
const halfMilli = uint64(500 * time.Microsecond)

// synchronizedRaw does with package driver what the others do safely.
func (g *gpu) synchronizedRaw(s *safe.Stream) error {
	ns := halfMilli
	params := [...]unsafe.Pointer{unsafe.Pointer(&ns)}
	if err := driver.CuLaunchKernel(g.spin.Raw(), 1, 1, 1, 1, 1, 1, 0, s.Raw(), &params[0], nil); err != nil {
		return err
	}
	return driver.CuStreamSynchronize(s.Raw())
}

// crowd has a goroutine for each stream. Of some rounds it takes the medians, and
// the most threads.
func crowd(g *gpu, e effort, streams []*safe.Stream, once func(*safe.Stream) error) (*line, error) {
	var walls, cpus []float64
	most := 0
	for range e.of(3, 1) {
		if err := g.idle(); err != nil {
			return nil, err
		}
		peak := g.countThreads()
		start, cpu := time.Now(), process.CPUTime()
		err := together(len(streams), func(i int) error {
			for range e.of(50, 2) {
				if err := once(streams[i]); err != nil {
					return err
				}
			}
			return nil
		})
		walls = append(walls, millis(time.Since(start)))
		cpus = append(cpus, millis(process.CPUTime()-cpu))
		n, failed := peak()
		if err := errors.Join(err, failed); err != nil {
			return nil, err
		}
		most = max(most, n)
	}
	l := newLine("", "")
	l.Values["wall ms"], l.Values["CPU ms"], l.Values["threads"] = median(walls), median(cpus), float64(most)
	return l, nil
}

// together calls f in n goroutines.
func together(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// countThreads looks now and then, until peak is called, how many threads there
// are. peak returns the most, above those when the GPU had been opened.
func (g *gpu) countThreads() (peak func() (int, error)) {
	stop, result := make(chan struct{}), make(chan error)
	most := 0
	look := func() error {
		n, err := process.Threads(os.Getpid())
		most = max(most, n-g.threads)
		return err
	}
	go func() {
		ticks := time.NewTicker(5 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				result <- look()
				return
			case <-ticks.C:
				if err := look(); err != nil {
					<-stop
					result <- err
					return
				}
			}
		}
	}()
	return func() (int, error) {
		close(stop)
		err := <-result
		return most, err
	}
}

func newStreams(g *gpu, n int) ([]*safe.Stream, error) {
	var streams []*safe.Stream
	for range n {
		s, err := safe.NewStreamWith(g.ctx, safe.StreamOptions{NonBlocking: true})
		if err != nil {
			return nil, errors.Join(err, closeAll(streams))
		}
		streams = append(streams, s)
	}
	return streams, nil
}

func closeAll(streams []*safe.Stream) error {
	var errs []error
	for _, s := range streams {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
