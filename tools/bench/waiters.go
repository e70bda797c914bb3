package main

import (
	"errors"
	"fmt"
	"runtime/metrics"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/process"
)

// waiters are goroutines that wait on some streams, all of which wait for a gate.
var waiters = group{
	name:    "waiters",
	columns: []string{"parked ms", "core %", "awake ms", "threads"},
	plot:    []string{"parked ms", "core %", "awake ms", "threads"},
	run:     behindGate,
}

// behindGate has them wait twice: at first the layer makes an event for each, which
// it has for the next.
func behindGate(g *gpu, e effort) ([]*line, error) {
	n := e.of(10_000, 40)
	streams, err := newStreams(g, e.of(256, 4))
	if err != nil {
		return nil, err
	}
	defer closeAll(streams)
	var lines []*line
	for _, way := range []string{"the first time", "the second time"} {
		l := newLine(fmt.Sprintf("%d Stream.Synchronize on %d streams", n, len(streams)), way)
		if err := l.parkAndWake(g, streams, n, time.Duration(e.of(1000, 10))*time.Millisecond); err != nil {
			return nil, err
		}
		l.atMost("core %", 15)
		l.atMost("awake ms", 20)
		lines = append(lines, l)
	}
	return lines, nil
}

// parkAndWake has n goroutines wait, for a time and until they are through.
func (l *line) parkAndWake(g *gpu, streams []*safe.Stream, n int, wait time.Duration) error {
	gate := (*uint32)(unsafe.Pointer(&g.pinned.Data()[0]))
	open := func() { atomic.StoreUint32(gate, 1) }
	atomic.StoreUint32(gate, 0)
	defer open() // else nothing could be closed
	if err := shut(g, streams); err != nil {
		return err
	}

	peak, start := g.countThreads(), time.Now()
	all := make(chan error)
	go func() { all <- together(n, func(i int) error { return streams[i%len(streams)].Synchronize() }) }()
	for sleepers() < n {
		if time.Since(start) > time.Minute {
			open()
			_, failed := peak()
			return errors.Join(fmt.Errorf("only %d of %d goroutines are waiting", sleepers(), n), <-all, failed)
		}
		time.Sleep(100 * time.Microsecond)
	}
	l.Values["parked ms"] = millis(time.Since(start))
	time.Sleep(wait) // some of them are still at their event, whose making takes a lock

	start, cpu := time.Now(), process.CPUTime()
	time.Sleep(wait)
	l.Values["core %"] = 100 * float64(process.CPUTime()-cpu) / float64(time.Since(start))

	start = time.Now()
	open()
	err := <-all
	l.Values["awake ms"] = millis(time.Since(start))
	most, failed := peak()
	l.Values["threads"] = float64(most)
	return errors.Join(err, failed)
}

// shut has the streams wait for a kernel on another stream, which waits for the
// first word of the pinned memory.
func shut(g *gpu, streams []*safe.Stream) error {
	flag, err := g.pinned.Slice(0, 4)
	if err != nil {
		return err
	}
	if err := errors.Join(g.wait.Launch(g.stream, one, flag.Arg()), g.stream.Record(g.event)); err != nil {
		return err
	}
	for _, s := range streams {
		if err := s.WaitEvent(g.event); err != nil {
			return err
		}
	}
	return nil
}

// sleepers is how many goroutines wait for something, also a lock, with a few of the program's
// own.
func sleepers() int {
	sample := []metrics.Sample{{Name: "/sched/goroutines/waiting:goroutines"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
