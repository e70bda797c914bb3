package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/collective"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/cudabind/cudabind/examples/internal/plot"
	"github.com/cudabind/cudabind/examples/internal/ranks"
)

// A trainer trains a model with a share of the sequences of each step. Several trainers, on a GPU
// each, average their gradients.
type trainer struct {
	*pass
	rank, ranks int
	comm        *collective.Comm // nil for one GPU

	text     *safe.Buffer[uint8] // its last part is for tests only
	learned  int                 // the length of the other part
	recipe   recipe
	schedule Schedule

	loss          *safe.Buffer[float32] // the mean one
	gradient      *safe.Buffer[bf16]    // of all parameters
	gradients     weights[bf16]         // views of gradient
	first, second *safe.Buffer[float32] // AdamW's moments
	sums          *safe.Buffer[float32] // of squares of the gradient, a block each
	update        *safe.Buffer[Update]
	history       *safe.Buffer[float32] // the loss of each step
	step, zero    *safe.Buffer[int32]   // on the device: zero is a step that remains 0
	testLoss      *safe.Buffer[float32]
	done          int // steps that have been launched
	summing       *safe.Stream
	drops         *random.Generator
	bits          *safe.Buffer[uint32]
	executable    *safe.GraphExec
}

const testPart = 10 // one of so many bytes is in the part of a text for tests

// newTrainer prepares the training of m from a checkpoint, whose steps may be 0.
func newTrainer(ctx context.Context, m *model, r *ranks.Rank, text []byte, c *checkpoint, o options) (t *trainer, err error) {
	p, err := newPass(m, o.sequences/r.Of, o.drop)
	if err != nil {
		return nil, err
	}
	t = &trainer{pass: p, rank: r.Number, ranks: r.Of, comm: r.Comm, recipe: c.Recipe, done: c.Step, learned: len(text) - len(text)/testPart}
	t.schedule = Schedule{Rate: o.rate, Beta1: 0.9, Beta2: 0.95, Decay: 0.1, Norm: 1, WarmUp: int32(min(100, o.steps/10)), Steps: int32(o.steps)}
	n, x := m.shape.parameters(), m.context
	a := &allocator{context: x}
	t.loss = buffer[float32](a, 1)
	t.gradient = buffer[bf16](a, n)
	t.sums = buffer[float32](a, 512)
	t.update = buffer[Update](a, 1)
	t.testLoss = buffer[float32](a, 1)
	var errs [8]error
	t.text, errs[0] = safe.Upload(x, text)
	t.first, errs[1] = safe.Upload(x, c.First)
	t.second, errs[2] = safe.Upload(x, c.Second)
	t.history, errs[3] = safe.NewZeroed[float32](x, o.steps)
	t.step, errs[4] = safe.Upload(x, []int32{int32(c.Step)})
	t.zero, errs[5] = safe.NewZeroed[int32](x, 1)
	t.summing, errs[6] = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	errs[7] = t.newDrops(a)
	if err := errors.Join(append(errs[:], a.err)...); err != nil {
		return nil, err
	}
	t.gradients = weightsOf(t.gradient, m.shape)
	if err := t.history.CopyFromHost(append(c.Losses, make([]float32, o.steps-len(c.Losses))...)); err != nil {
		return nil, err
	}
	return t, t.capture(ctx)
}

// newDrops makes the random bytes that say which values of branches are dropped. After a
// checkpoint they go on where they were.
func (t *trainer) newDrops(a *allocator) (err error) {
	if t.drop == 0 {
		return nil
	}
	branch := t.rows() * t.Channels
	t.bits = buffer[uint32](a, len(t.random)*branch/4)
	if a.err != nil {
		return a.err
	}
	all, err := safe.Cast[uint8](t.bits)
	if err != nil {
		return err
	}
	for i := range t.random {
		t.random[i] = slice(a, all, i*branch, (i+1)*branch)
	}
	t.drops, err = random.New(t.context, random.Philox, random.Options{
		Seed: t.recipe.Seed + 1 + uint64(t.rank), Offset: uint64(t.done) * uint64(t.bits.Len()),
	})
	return err
}

// capture makes the graph of a step. Several ranks compute a gradient before: NCCL connects them at the first
// operation of each size, which is not to be captured.
func (t *trainer) capture(ctx context.Context) (err error) {
	if t.comm != nil {
		if err := t.enqueueGradient(); err != nil {
			return err
		}
	}
	if err := t.wait(ctx); err != nil {
		return err
	}
	t.executable, err = t.stream.CaptureExecutable(t.enqueueStep)
	return err
}

// enqueueGradient enqueues the first part of a step: draw sequences, forward, backward. The loss and
// the gradients of each layer are averaged over all ranks while the next gradients are computed.
func (t *trainer) enqueueGradient() error {
	err := errors.Join(
		t.sample(t.step, 0, 0, t.learned, t.recipe.Seed),
		t.forward(),
		t.kernels.Mean.Launch(t.stream, oneBlock, t.losses, int32(t.rows()), t.loss),
		average(t, t.loss))
	if err != nil {
		return err
	}
	if err := t.backward(t.gradients, t.averageGradient); err != nil || t.comm == nil {
		return err
	}
	return t.stream.WaitStream(t.summing)
}

// enqueueStep enqueues a step: the gradient, and the update of the parameters by it.
func (t *trainer) enqueueStep() error {
	if err := t.enqueueGradient(); err != nil {
		return err
	}
	k, s, n := t.kernels, t.stream, t.shape.parameters()
	blocks := safe.LaunchConfig{Grid: safe.Dim{X: uint32(t.sums.Len())}, Block: safe.Dim{X: 512}}
	return errors.Join(
		k.Squares.Launch(s, blocks, t.gradient, int32(n), t.sums),
		k.Plan.Launch(s, oneBlock, t.sums, int32(t.sums.Len()), t.loss, t.schedule, t.update, t.history, t.step),
		k.Adam.Launch(s, safe.Threads(n), t.parameters, t.rounded, t.gradient, t.first, t.second, t.update, t.schedule, int32(n)))
}

var oneBlock = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1024}}

// sample enqueues the choice of this rank's sequences from a part of the text.
func (t *trainer) sample(step *safe.Buffer[int32], later, from, to int, seed uint64) error {
	part, err := t.text.Slice(from, to)
	if err != nil {
		return err
	}
	one := safe.LaunchConfig{Grid: safe.Dim{X: uint32(t.sequences)}, Block: safe.Dim{X: 256}}
	return t.kernels.Sample.Launch(t.stream, one, part, uint64(to-from), seed, step, int32(later), int32(t.rank*t.sequences), t.tokens, t.targets, int32(t.Context))
}

// averageGradient enqueues the average over all ranks of the gradient from one place to another.
func (t *trainer) averageGradient(from, to int) error {
	part, err := t.gradient.Slice(from, to)
	if err != nil {
		return err
	}
	return average(t, part)
}

// average enqueues on a second stream the average over all ranks of what the first one leaves in b.
func average[T collective.Element](t *trainer, b *safe.Buffer[T]) error {
	if t.comm == nil {
		return nil
	}
	if err := t.summing.WaitStream(t.stream); err != nil {
		return err
	}
	return collective.AllReduce(t.comm, t.summing, b, b, collective.Average)
}

// run trains until a number of steps has been done.
func (t *trainer) run(steps int) error {
	for ; t.done < steps; t.done++ {
		if t.drops != nil {
			if err := random.Bits(t.drops, t.stream, t.bits); err != nil {
				return err
			}
		}
		if err := t.executable.Launch(t.stream); err != nil {
			return err
		}
	}
	return nil
}

// test returns the mean loss of all ranks for sequences of the part of the text from which
// nothing is learned: the same ones each time.
func (t *trainer) test(ctx context.Context, batches int) (mean float32, err error) {
	learning := t.random
	t.random = make([]*safe.Buffer[uint8], len(learning)) // nothing is dropped; the graph of a step has its own pointers
	defer func() { t.random = learning }()
	for i := range batches {
		err := errors.Join(
			t.sample(t.zero, i, t.learned, t.text.Len(), t.recipe.Seed),
			t.forward(),
			t.kernels.Mean.Launch(t.stream, oneBlock, t.losses, int32(t.rows()), t.testLoss))
		if err == nil && t.comm != nil {
			err = collective.AllReduce(t.comm, t.stream, t.testLoss, t.testLoss, collective.Average)
		}
		if err == nil {
			err = t.wait(ctx)
		}
		if err != nil {
			return 0, err
		}
		loss, err := t.testLoss.Download()
		if err != nil {
			return 0, err
		}
		mean += loss[0] / float32(batches)
	}
	return mean, nil
}

// wait waits for all that the trainer has enqueued, or until another rank is lost.
func (t *trainer) wait(ctx context.Context) error {
	if t.comm == nil {
		return t.stream.Wait(ctx)
	}
	return t.comm.Wait(ctx, t.stream)
}

// checkpoint returns all that the training needs to go on.
func (t *trainer) checkpoint() (*checkpoint, error) {
	c := &checkpoint{header: header{t.shape, t.done, t.recipe}}
	var errs [4]error
	c.Parameters, errs[0] = t.parameters.Download()
	c.First, errs[1] = t.first.Download()
	c.Second, errs[2] = t.second.Download()
	c.Losses, errs[3] = t.history.Download()
	c.Losses = c.Losses[:t.done]
	return c, errors.Join(errs[:]...)
}

// close frees what the trainer has beside its model, which is all of the context.
func (t *trainer) close() error { return errors.Join(t.executable.Close(), t.drops.Close()) }

// trainOn trains a model on the rank's GPU as o says, and tells w how it goes.
func trainOn(ctx context.Context, r *ranks.Rank, text []byte, c *checkpoint, o options, w io.Writer) (err error) {
	m, err := newModel(ctx, r.Context, c.Shape, c.Parameters, o.seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if c.Parameters == nil {
		if c, err = begun(ctx, m, c.header); err != nil {
			return err
		}
		if r.Number == 0 { // better now than after hours if it cannot be written
			if err := c.write(o.model); err != nil {
				return err
			}
		}
	}
	if c.Step == o.steps {
		return nil
	}
	t, err := newTrainer(ctx, m, r, text, c, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	next := func(multiple int) int { return t.done + multiple - t.done%multiple }
	var took time.Duration
	for t.done < o.steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		begin := time.Now()
		if err := t.run(min(o.steps, next(o.report), next(o.save))); err != nil {
			return err
		}
		if err := t.wait(ctx); err != nil {
			return err
		}
		took += time.Since(begin)
		if err := t.report(ctx, took/time.Duration(t.done-c.Step), o, w); err != nil {
			return err
		}
	}
	if err := t.executable.Close(); err != nil || r.Comm == nil { // it holds the communicator
		return err
	}
	return r.Comm.Shutdown(ctx) // waits for the other ranks, which need this one until then
}

// begun returns the checkpoint of a new model.
func begun(ctx context.Context, m *model, h header) (*checkpoint, error) {
	if err := m.stream.Wait(ctx); err != nil {
		return nil, err
	}
	parameters, err := m.parameters.Download()
	n := m.shape.parameters()
	return &checkpoint{h, parameters, make([]float32, n), make([]float32, n), nil}, err
}

// report tells how the training goes, with the time that each step took, and saves it when it is time.
func (t *trainer) report(ctx context.Context, each time.Duration, o options, w io.Writer) error {
	end := t.done == o.steps
	line := fmt.Sprintf("step %d of %d", t.done, o.steps)
	if t.done%o.save == 0 || end {
		loss, err := t.test(ctx, o.tests)
		if err != nil {
			return err
		}
		line += fmt.Sprintf(", test loss %.4f", loss)
	}
	if t.rank != 0 {
		return nil
	}
	losses, err := t.history.Download()
	if err != nil {
		return err
	}
	perSecond := float64(o.sequences*t.Context) / each.Seconds()
	fmt.Fprintf(w, "%s, loss %.4f, %.2f ms a step, %.0f tokens/s\n", line, losses[t.done-1], float64(each)/1e6, perSecond)
	if t.done%o.save != 0 && !end {
		return nil
	}
	c, err := t.checkpoint()
	if err != nil {
		return err
	}
	return errors.Join(c.write(o.model), plot.Write(o.plot, c.Losses, 6, 0.5, 5, 2, 1))
}
