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
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/collective"
	"github.com/cudabind/cudabind/examples/internal/plot"
	"github.com/cudabind/cudabind/examples/internal/ranks"
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
	if flag.NArg() > 0 {
		log.Fatalf("train: unexpected argument %q", flag.Arg(0))
	}
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
	all, err := ranks.Connect(ctx, o.gpus)
	defer func() { err = errors.Join(err, all.Close()) }()
	if err != nil {
		return err
	}
	if o.points%all[0].Of != 0 {
		return fmt.Errorf("-points %d is no multiple of the number of GPUs, %d", o.points, all[0].Of)
	}
	losses, err := trainAll(ctx, all, o, w)
	if err != nil || all[0].Number != 0 {
		return err
	}
	return plot.Write(o.file, losses, 3, 0.001, 1, 0.1, 0.01)
}

// trainAll trains on all GPUs of this process.
func trainAll(ctx context.Context, all ranks.Ranks, o options, w io.Writer) (losses []float32, err error) {
	err = all.Run(ctx, func(ctx context.Context, r *ranks.Rank) error {
		got, err := trainOn(ctx, r, o, w)
		if r == all[0] {
			losses = got
		}
		return err
	})
	return losses, err
}

// trainOn captures a step as a graph, launches that for each step, and returns the losses.
func trainOn(ctx context.Context, r *ranks.Rank, o options, w io.Writer) (losses []float32, err error) {
	points, labels := spiral(o.points)
	from, to := r.Number*o.points/r.Of, (r.Number+1)*o.points/r.Of
	n, err := newNetwork(ctx, r.Context, points[2*from:2*to], labels[from:to], o.steps)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.handle.Close()) }()
	if r.Comm != nil { // NCCL connects the ranks at the first operation, which is not to be captured
		if err := collective.AllReduce(r.Comm, n.stream, n.gradient, n.gradient, collective.Average); err != nil {
			return nil, err
		}
	}
	if err := r.Wait(ctx, n.stream); err != nil {
		return nil, err
	}
	step, err := n.stream.CaptureExecutable(func() error { return n.step(r.Comm) })
	if err != nil {
		return nil, err
	}
	losses, err = replay(ctx, r, n, step, o.steps, w)
	err = errors.Join(err, step.Close())
	if err == nil && r.Comm != nil {
		err = r.Comm.Shutdown(ctx) // waits for the other ranks, which need this one until then
	}
	return losses, err
}

// replay launches the graph for each step. It looks at the losses ten times, and rank 0 prints them.
func replay(ctx context.Context, r *ranks.Rank, n *network, step *safe.GraphExec, steps int, w io.Writer) (losses []float32, err error) {
	begin := time.Now()
	for done := 1; done <= steps; done++ {
		if err := step.Launch(n.stream); err != nil {
			return nil, err
		}
		if done != steps && done%max(steps/10, 1) != 0 {
			continue
		}
		if err := r.Wait(ctx, n.stream); err != nil {
			return nil, err
		}
		if losses, err = n.losses.Download(); err != nil {
			return nil, err
		}
		if r.Number == 0 {
			fmt.Fprintf(w, "\rstep %d of %d, loss %.4f", done, steps, losses[done-1])
		}
	}
	if r.Number == 0 {
		each := time.Since(begin).Seconds() * 1000 / float64(steps)
		fmt.Fprintf(w, "\nGPUs: %d, ms per step: %.4f, final loss: %.6f\n", r.Of, each, losses[steps-1])
	}
	return losses, nil
}
