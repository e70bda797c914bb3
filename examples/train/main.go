// Command train teaches a small neural network which arm of a spiral a point is on. One GPU or
// several learn from a share of the points each, and average their gradients in every step:
//
//	go run github.com/cudabind/cudabind/examples/train
//	go run github.com/cudabind/cudabind/examples/train -gpus 2
//
// or, with a process for each GPU, torchrun --no-python --nproc-per-node 2 ./train. It writes a
// plot of the loss as a PNG. train.py does the same in PyTorch.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/collective"
)

type options struct {
	steps, points, gpus int
	file                string
}

func main() {
	log.SetFlags(0)
	var o options
	flag.IntVar(&o.steps, "steps", 1000, "number of `steps`")
	flag.IntVar(&o.points, "points", 6144, "number of `points`, a multiple of the number of GPUs")
	flag.IntVar(&o.gpus, "gpus", 1, "number of GPUs of this process")
	flag.StringVar(&o.file, "o", "loss.png", "write the plot to this `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		log.Fatal("train: ", err)
	}
}

// run trains, tells w how it goes, and writes the plot. With a process for each GPU, rank 0 does.
func run(ctx context.Context, o options, w io.Writer) (err error) {
	if min(o.steps, o.points, o.gpus) < 1 {
		return errors.New("-steps, -points and -gpus must be at least 1")
	}
	ranks, err := connect(ctx, o)
	defer func() {
		for _, r := range ranks {
			err = errors.Join(err, r.context.CloseAll(), r.context.Close())
		}
	}()
	if err != nil {
		return err
	}
	losses, err := trainAll(ctx, ranks, o, w)
	if err != nil || ranks[0].number != 0 {
		return err
	}
	return writePlot(o.file, losses)
}

// A rank is one of the GPUs that learn together.
type rank struct {
	number, of int
	context    *safe.Context
	comm       *collective.Comm // nil for one GPU, which needs no NCCL
}

// connect opens the GPUs of this process, and connects them with each other or with those of the
// other processes. The contexts are to be closed even if it returns an error.
func connect(ctx context.Context, o options) (ranks []*rank, err error) {
	launched, err := collective.FromEnv()
	switch {
	case errors.Is(err, collective.ErrNoLauncher), err == nil && launched.Size == 1:
		launched = collective.Options{Size: o.gpus}
	case err != nil:
		return nil, err
	case o.gpus > 1:
		return nil, fmt.Errorf("a launcher has started %d processes for a GPU each: leave out -gpus", launched.Size)
	}
	if o.points%launched.Size != 0 {
		return nil, fmt.Errorf("-points %d is no multiple of the number of GPUs, %d", o.points, launched.Size)
	}
	var contexts []*safe.Context
	for i := range o.gpus {
		x, err := safe.Open(launched.LocalRank + i)
		if err != nil {
			return ranks, fmt.Errorf("GPU %d: %w", launched.LocalRank+i, err)
		}
		contexts = append(contexts, x)
		ranks = append(ranks, &rank{number: launched.Rank + i, of: launched.Size, context: x})
	}
	if launched.Size == 1 {
		return ranks, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if o.gpus == 1 {
		ranks[0].comm, err = collective.Join(ctx, contexts[0], launched)
		return ranks, err
	}
	comms, err := collective.Open(ctx, contexts...)
	for i, c := range comms {
		ranks[i].comm = c
	}
	return ranks, err
}

// trainAll trains on all GPUs of this process, a goroutine each. The first error ends all.
func trainAll(ctx context.Context, ranks []*rank, o options, w io.Writer) (losses []float32, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i, r := range ranks {
		if r.comm != nil { // its first operation waits for the other ranks
			defer context.AfterFunc(ctx, func() { r.comm.Abort(context.Cause(ctx)) })()
		}
		all.Go(func() {
			got, err := r.train(ctx, o, w)
			if err != nil {
				cancel(fmt.Errorf("rank %d: %w", r.number, err))
			} else if i == 0 {
				losses = got
			}
		})
	}
	all.Wait()
	return losses, context.Cause(ctx)
}

// train captures a step as a graph, launches that for each step, and returns the losses.
func (r *rank) train(ctx context.Context, o options, w io.Writer) (losses []float32, err error) {
	points, labels := spiral(o.points)
	from, to := r.number*o.points/r.of, (r.number+1)*o.points/r.of
	n, err := newNetwork(ctx, r.context, points[2*from:2*to], labels[from:to], o.steps)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.handle.Close()) }()
	if r.comm != nil { // NCCL connects the ranks at the first operation, which is not to be captured
		if err := collective.AllReduce(r.comm, n.stream, n.gradient, n.gradient, collective.Average); err != nil {
			return nil, err
		}
	}
	if err := r.wait(ctx, n.stream); err != nil {
		return nil, err
	}
	step, err := n.stream.CaptureExecutable(func() error { return n.step(r.comm) })
	if err != nil {
		return nil, err
	}
	losses, err = r.replay(ctx, n, step, o.steps, w)
	err = errors.Join(err, step.Close())
	if err == nil && r.comm != nil {
		err = r.comm.Shutdown(ctx) // waits for the other ranks, which need this one until then
	}
	return losses, err
}

// replay launches the graph for each step. It looks at the losses ten times, and rank 0 prints them.
func (r *rank) replay(ctx context.Context, n *network, step *safe.GraphExec, steps int, w io.Writer) (losses []float32, err error) {
	begin := time.Now()
	for done := 1; done <= steps; done++ {
		if err := step.Launch(n.stream); err != nil {
			return nil, err
		}
		if done != steps && done%max(steps/10, 1) != 0 {
			continue
		}
		if err := r.wait(ctx, n.stream); err != nil {
			return nil, err
		}
		if losses, err = n.losses.Download(); err != nil {
			return nil, err
		}
		if r.number == 0 {
			fmt.Fprintf(w, "\rstep %d of %d, loss %.4f", done, steps, losses[done-1])
		}
	}
	if r.number == 0 {
		each := time.Since(begin).Seconds() * 1000 / float64(steps)
		fmt.Fprintf(w, "\nGPUs: %d, ms per step: %.4f, final loss: %.6f\n", r.of, each, losses[steps-1])
	}
	return losses, nil
}

func (r *rank) wait(ctx context.Context, s *safe.Stream) error {
	if r.comm == nil {
		return s.Wait(ctx)
	}
	return r.comm.Wait(ctx, s) // also ends when another rank is lost
}
