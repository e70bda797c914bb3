// Package ranks runs a program on several GPUs: in one process, or in a process for each GPU that a
// launcher such as torchrun has started.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/collective"
)

// A Rank is one of the GPUs that work together.
type Rank struct {
	Number, Of int
	Context    *safe.Context
	Comm       *collective.Comm // nil for one GPU, which needs no NCCL
}

// Ranks are those of this process.
type Ranks []*Rank

// Connect opens the GPUs of this process, and connects them with each other or with those of the
// other processes. The ranks are to be closed even if it returns an error.
func Connect(ctx context.Context, gpus int) (all Ranks, err error) {
	launched, err := collective.FromEnv()
	switch {
	case errors.Is(err, collective.ErrNoLauncher), err == nil && launched.Size == 1:
		launched = collective.Options{Size: gpus}
	case err != nil:
		return nil, err
	case gpus > 1:
		return nil, fmt.Errorf("a launcher has started %d processes for a GPU each: leave out -gpus", launched.Size)
	}
	var contexts []*safe.Context
	for i := range gpus {
		x, err := safe.Open(launched.LocalRank + i)
		if err != nil {
			return all, fmt.Errorf("GPU %d: %w", launched.LocalRank+i, err)
		}
		contexts = append(contexts, x)
		all = append(all, &Rank{Number: launched.Rank + i, Of: launched.Size, Context: x})
	}
	if launched.Size == 1 {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if gpus == 1 {
		all[0].Comm, err = collective.Join(ctx, contexts[0], launched)
		return all, err
	}
	comms, err := collective.Open(ctx, contexts...)
	for i, c := range comms {
		all[i].Comm = c
	}
	return all, err
}

// Run calls f for each rank in a goroutine of its own, and waits for all. The first error ends all.
func (all Ranks) Run(ctx context.Context, f func(context.Context, *Rank) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, r := range all {
		if r.Comm != nil { // its first operation waits for the other ranks
			defer context.AfterFunc(ctx, func() { r.Comm.Abort(context.Cause(ctx)) })()
		}
		running.Go(func() {
			if err := f(ctx, r); err != nil {
				cancel(fmt.Errorf("rank %d: %w", r.Number, err))
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// Close closes all that is in the contexts of the ranks, and these.
func (all Ranks) Close() (err error) {
	for _, r := range all {
		err = errors.Join(err, r.Context.CloseAll(), r.Context.Close())
	}
	return err
}

// Wait waits for the work of a stream of the rank, or until another rank is lost.
func (r *Rank) Wait(ctx context.Context, s *safe.Stream) error {
	if r.Comm == nil {
		return s.Wait(ctx)
	}
	return r.Comm.Wait(ctx, s)
}
