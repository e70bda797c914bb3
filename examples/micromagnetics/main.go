// Command micromagnetics lets the magnetization of a square of permalloy relax on the GPU, and
// draws it as a PNG:
//
//	go run github.com/cudabind/cudabind/examples/micromagnetics -o vortex.png
//
// Each cell feels the field of all others, a convolution that package fft computes by transforms of
// planes of twice the width and height. -bench prints the time of a step, as testdata/bench.cu and
// testdata/bench.py do for the same steps by C and CuPy.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

type options struct {
	edge, steps int
	file        string
	bench       bool
	tensors     string
}

func main() {
	log.SetFlags(0)
	var o options
	flag.IntVar(&o.edge, "edge", 256, "number of `cells` of 4 nm along an edge")
	flag.IntVar(&o.steps, "steps", 8000, "number of `steps` of half a picosecond")
	flag.StringVar(&o.file, "o", "vortex.png", "write the picture to this `file`")
	flag.BoolVar(&o.bench, "bench", false, "print the time of a step for 256, 512 and 1024 cells along an edge")
	flag.StringVar(&o.tensors, "tensors", "", "with -bench, write the tensors into this `folder`, for the programs in testdata")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("micromagnetics: unexpected argument %q", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		log.Fatal("micromagnetics: ", err)
	}
}

var cell = size{4e-9, 4e-9, 20e-9}

const (
	damping = 0.5
	dt      = 0.5 * picosecond
)

func run(ctx context.Context, o options, w io.Writer) (err error) {
	if o.edge < 1 || o.edge > 4096 || o.steps < 0 {
		return errors.New("-edge must be from 1 to 4096, -steps at least 0")
	}
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.CloseAll(), x.Close()) }()
	if o.bench {
		for _, edge := range []int{256, 512, 1024} {
			if err := bench(ctx, x, edge, w); err != nil {
				return err
			}
			if err := writeTensor(o.tensors, edge); err != nil {
				return err
			}
		}
		return nil
	}
	m, err := relax(ctx, x, o, w)
	if err != nil {
		return err
	}
	return writePicture(o.file, m, o.edge)
}

// relax returns the magnetization after all steps, and prints the energy ten times.
func relax(ctx context.Context, x *safe.Context, o options, w io.Writer) (m []float32, err error) {
	s, err := newSolver(ctx, x, o.edge, o.edge, cell, damping, dt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.magnetize(swirl(o.edge)); err != nil {
		return nil, err
	}
	for done := 0; ; {
		energy, err := s.energy(cell[0] * cell[1] * cell[2])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(w, "%7.1f ps: %.4e J\n", float64(done)*dt/picosecond, energy)
		if done == o.steps {
			return s.m.Download()
		}
		more := min(max(o.steps/10, 1), o.steps-done)
		if err := errors.Join(s.run(more), s.stream.Wait(ctx)); err != nil {
			return nil, err
		}
		done += more
	}
}

// bench prints the time of a step.
func bench(ctx context.Context, x *safe.Context, edge int, w io.Writer) (err error) {
	s, err := newSolver(ctx, x, edge, edge, cell, damping, dt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.magnetize(swirl(edge)); err != nil {
		return err
	}
	const steps = 500
	best := math.Inf(1)
	for range 5 { // the first warms up
		begin := time.Now()
		if err := errors.Join(s.run(steps), s.stream.Wait(ctx)); err != nil {
			return err
		}
		best = min(best, time.Since(begin).Seconds()*1000/steps)
	}
	energy, err := s.energy(cell[0] * cell[1] * cell[2])
	fmt.Fprintf(w, "%d x %d: %.4f ms per step, %.4e J\n", edge, edge, best, energy)
	return err
}

// writeTensor writes a tensor into a folder, if one is named.
func writeTensor(folder string, edge int) error {
	if folder == "" {
		return nil
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, demagnetization(edge, edge, cell)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, fmt.Sprint("tensor-", edge)), b.Bytes(), 0o666)
}

// swirl returns a magnetization that turns around the centre, where it points out of the plane.
func swirl(edge int) []float32 {
	m := make([]float32, 3*edge*edge)
	for i := range edge * edge {
		x, y := float64(i%edge)-float64(edge-1)/2, float64(i/edge)-float64(edge-1)/2
		length := math.Sqrt(x*x + y*y + 9)
		m[i], m[i+edge*edge], m[i+2*edge*edge] = float32(-y/length), float32(x/length), float32(3/length)
	}
	return m
}
