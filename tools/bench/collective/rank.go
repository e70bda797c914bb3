package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/collective"
)

// plan is what a contestant does with a size. ranks.c and ranks.py do the same.
type plan struct{ bytes, times int }

const (
	warm    = 20 // operations before those that count
	grouped = 5  // operations in a group
	repeats = 5  // of means
)

func plans(short bool) []plan {
	if short {
		return []plan{{8, 5}, {64 << 10, 5}}
	}
	return []plan{{8, 200}, {64 << 10, 200}, {1 << 20, 200}, {16 << 20, 200}, {256 << 20, 20}}
}

// beRank is the contestant in Go: one rank if RANK is set, or a goroutine for each.
func beRank(short bool, w io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rank, one := os.LookupEnv("RANK")
	var version int32
	if err := nccl.NcclGetVersion(&version); err == nil && (rank == "0" || !one) {
		fmt.Fprintln(os.Stderr, "Go: NCCL", version)
	}
	if one {
		o, err := collective.FromEnv()
		if err != nil {
			return err
		}
		x, err := safe.Open(o.LocalRank)
		if err != nil {
			return err
		}
		defer x.CloseAll()
		c, err := collective.Join(ctx, x, o)
		if err != nil {
			return err
		}
		return errors.Join(measure(c, x, short, w), c.Shutdown(ctx))
	}
	n, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil {
		return err
	}
	contexts := make([]*safe.Context, n)
	for i := range contexts {
		if contexts[i], err = safe.Open(i); err != nil {
			return err
		}
		defer contexts[i].CloseAll()
	}
	comms, err := collective.Open(ctx, contexts...)
	if err != nil {
		return err
	}
	done := make(chan error)
	for i, c := range comms {
		go func() { done <- measure(c, contexts[i], short, w) }()
	}
	for range comms {
		if failed := <-done; failed != nil {
			comms[0].Abort(failed)
			err = errors.Join(err, failed)
		}
	}
	return errors.Join(err, comms.Shutdown(ctx))
}

// measure measures a rank, and prints the figures of rank 0.
func measure(c *collective.Comm, x *safe.Context, short bool, w io.Writer) error {
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	for _, p := range plans(short) {
		f, err := p.measure(c, s)
		if err != nil {
			return err
		}
		if c.Rank() > 0 {
			continue
		}
		if err := json.NewEncoder(w).Encode(f); err != nil {
			return err
		}
	}
	return s.Close()
}

func (p plan) measure(c *collective.Comm, s *safe.Stream) (*figures, error) {
	b, err := safe.NewBufferWith[float32](s.Context(), p.bytes/4, safe.BufferOptions{Plain: true}) // as cudaMalloc's
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if err := b.Fill(0); err != nil {
		return nil, err
	}
	sum := func() error { return collective.AllReduce(c, s, b, b, collective.Sum) }
	wait := func() error { return c.Wait(context.Background(), s) }
	group := func() error {
		return collective.Group(func(g *collective.Calls) error {
			for range grouped {
				if err := collective.AllReduce(c.In(g), s, b, b, collective.Sum); err != nil {
					return err
				}
			}
			return nil
		})
	}
	f := &figures{Bytes: p.bytes}
	if f.Wait, err = p.single(sum, wait); err != nil {
		return nil, err
	}
	if f.Many, err = means(p.times, sum, wait); err != nil {
		return nil, err
	}
	if f.Group, err = means(p.times, group, wait); err != nil {
		return nil, err
	}
	e, err := s.CaptureExecutable(sum)
	if err != nil {
		return nil, err
	}
	f.Graph, err = p.single(func() error { return e.Launch(s) }, wait)
	return f, errors.Join(err, e.Close())
}

// single returns the median of f and wait.
func (p plan) single(f, wait func() error) (float64, error) {
	var all []float64
	for range warm + p.times {
		from := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		if err := wait(); err != nil {
			return 0, err
		}
		all = append(all, micros(time.Since(from)))
	}
	return median(all[warm:]), nil
}

// means returns the median of means of f, called so many times before a wait.
func means(times int, f, wait func() error) (float64, error) {
	var all []float64
	for range 1 + repeats {
		from := time.Now()
		for range times {
			if err := f(); err != nil {
				return 0, err
			}
		}
		if err := wait(); err != nil {
			return 0, err
		}
		all = append(all, micros(time.Since(from))/float64(times))
	}
	return median(all[1:]), nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
