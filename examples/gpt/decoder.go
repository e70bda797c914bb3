package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/random"
)

// A decoder writes on from several texts at once. Each has a slot of the cache, where the keys and
// values of its tokens so far are, so that a step computes one token of each text.
type decoder struct {
	*model
	slots int
	cache []*safe.Buffer[bf16] // of each layer; a slot more is for rows without a text

	given  *safe.Pinned[Row] // what goes in
	picked *safe.Pinned[int32]
	rows   *safe.Buffer[Row] // the same on the device
	chosen *safe.Buffer[int32]

	uniform                             *safe.Buffer[float32]
	x, scales                           *safe.Buffer[float32]
	y, qkv, mixed, branch, wide, scores blas.Matrix[bf16]
	steps                               []decoderStep // the smallest first
}

// A decoderStep is a step for up to so many texts, as a graph.
type decoderStep struct {
	size       int
	numbers    *random.Generator // a graph needs its own
	executable *safe.GraphExec
}

// newDecoder makes a decoder for up to so many texts at once. It works on m's stream.
func newDecoder(ctx context.Context, m *model, slots int, seed uint64) (d *decoder, err error) {
	d = &decoder{model: m, slots: slots}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	a, c := &allocator{context: m.context}, m.Channels
	for range m.Layers {
		d.cache = append(d.cache, buffer[bf16](a, (slots+1)*m.Context*2*c))
	}
	d.rows, d.chosen = buffer[Row](a, slots), buffer[int32](a, slots)
	d.uniform, d.x, d.scales = buffer[float32](a, slots), buffer[float32](a, slots*c), buffer[float32](a, slots)
	d.y, d.mixed, d.branch = matrix(a, slots, c), matrix(a, slots, c), matrix(a, slots, c)
	d.qkv, d.wide, d.scores = matrix(a, slots, 3*c), matrix(a, slots, 4*c), matrix(a, slots, tokens)
	var errs [2]error
	d.given, errs[0] = safe.NewPinned[Row](m.context, slots)
	d.picked, errs[1] = safe.NewPinned[int32](m.context, slots)
	if err := errors.Join(a.err, errs[0], errs[1]); err != nil {
		return d, err
	}
	for _, size := range []int{1, 8, 32, slots} {
		if n := len(d.steps); size > slots || n > 0 && size <= d.steps[n-1].size {
			continue
		}
		if err := d.capture(ctx, size, seed); err != nil {
			return d, err
		}
	}
	return d, nil
}

// capture makes the graph of a step.
func (d *decoder) capture(ctx context.Context, size int, seed uint64) (err error) {
	s := decoderStep{size: size}
	if s.numbers, err = random.New(d.context, random.Philox, random.Options{Seed: seed + uint64(size)}); err != nil {
		return err
	}
	if err := d.stream.Wait(ctx); err != nil {
		return errors.Join(err, s.numbers.Close())
	}
	s.executable, err = d.stream.CaptureExecutable(func() error { return d.enqueue(size, s.numbers) })
	if err != nil {
		return errors.Join(err, s.numbers.Close())
	}
	d.steps = append(d.steps, s)
	return nil
}

// enqueue enqueues a step for the first n rows.
func (d *decoder) enqueue(n int, numbers *random.Generator) error {
	k, s, c := d.kernels, d.stream, int32(d.Channels)
	given, err1 := d.given.Slice(0, n)
	onDevice, err2 := d.rows.Slice(0, n)
	uniform, err3 := d.uniform.Slice(0, n)
	chosen, err4 := d.chosen.Slice(0, n)
	picked, err5 := d.picked.Slice(0, n)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	err := errors.Join(
		onDevice.CopyFromHostAsync(s, given),
		k.Begin.Launch(s, aBlockEach(n, 1), d.rows, d.parameters, d.ofPlace, d.x, c))
	if err != nil {
		return err
	}
	top := func(m blas.Matrix[bf16]) blas.Matrix[bf16] { return m.Sub(0, 0, n, m.Cols) }
	normalize := func(branch safe.Pointer[bf16]) error {
		return k.Normalize.Launch(s, rows(n), d.x, branch, nil, 0, d.y.Buffer, d.scales, int32(n), c)
	}
	var branch safe.Pointer[bf16]
	for i, w := range d.weights.layers {
		err := errors.Join(
			normalize(branch),
			d.multiply(top(d.y), w.qkv, top(d.qkv), blas.MatmulOptions{}),
			k.AttendCache.Launch(s, aBlockEach(n, d.heads()), d.qkv.Buffer, d.cache[i], d.rows, d.mixed.Buffer, int32(d.Context), c),
			d.multiply(top(d.mixed), w.project, top(d.branch), blas.MatmulOptions{}),
			normalize(d.branch.Buffer),
			d.multiply(top(d.y), w.widen, top(d.wide), blas.MatmulOptions{Epilogue: blas.GELU}),
			d.multiply(top(d.wide), w.narrow, top(d.branch), blas.MatmulOptions{}))
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		branch = d.branch.Buffer
	}
	return errors.Join(
		normalize(branch),
		d.multiply(top(d.y), d.weights.out, top(d.scores), blas.MatmulOptions{}),
		random.Uniform(numbers, s, uniform),
		k.Pick.Launch(s, rows(n), d.scores.Buffer, d.rows, d.uniform, d.chosen, int32(n)),
		chosen.CopyToHostAsync(s, picked))
}

// aBlockEach is the launch of a kernel in which a block does a row and a head.
func aBlockEach(rows, heads int) safe.LaunchConfig {
	return safe.LaunchConfig{Grid: safe.Dim{X: uint32(rows), Y: uint32(heads)}, Block: safe.Dim{X: 128}}
}

// step appends the token of each row to the text in its slot, and returns what is to follow each.
// The result is valid until the next step.
func (d *decoder) step(ctx context.Context, rows []Row) ([]int32, error) {
	for _, s := range d.steps {
		if s.size < len(rows) {
			continue
		}
		given := d.given.Data()[:s.size]
		for i := copy(given, rows); i < len(given); i++ {
			given[i] = Row{Slot: int32(d.slots)}
		}
		if err := s.executable.Launch(d.stream); err != nil {
			return nil, err
		}
		return d.picked.Data()[:len(rows)], d.stream.Wait(ctx)
	}
	return nil, fmt.Errorf("%d texts are more than %d", len(rows), d.slots)
}

// close frees the decoder, but not its model.
func (d *decoder) close() error {
	var errs []error
	for _, s := range d.steps {
		errs = append(errs, s.executable.Close(), s.numbers.Close())
	}
	buffers := []interface{ Close() error }{d.given, d.picked, d.rows, d.chosen, d.uniform, d.x, d.scales,
		d.y.Buffer, d.mixed.Buffer, d.branch.Buffer, d.qkv.Buffer, d.wide.Buffer, d.scores.Buffer}
	for _, c := range d.cache {
		buffers = append(buffers, c)
	}
	for _, b := range buffers {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// loaded opens a GPU and the model in the file that o names, and calls f with a decoder of it.
func loaded(ctx context.Context, o options, slots int, f func(*decoder) error) (err error) {
	c, err := readCheckpoint(o.model)
	if err != nil {
		return err
	}
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.CloseAll(), x.Close()) }()
	m, err := newModel(ctx, x, c.Shape, c.Parameters, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	d, err := newDecoder(ctx, m, slots, o.seed)
	if err != nil {
		return err
	}
	return errors.Join(f(d), d.close())
}

// write writes on from the prompt to w.
func write(ctx context.Context, o options, w io.Writer) error {
	return loaded(ctx, o, 1, func(d *decoder) error {
		t, err := newText([]byte(o.prompt), o.length, o.temperature, d.Context)
		if err != nil {
			return err
		}
		fmt.Fprint(w, o.prompt)
		for !t.done() {
			next, err := d.step(ctx, []Row{t.row(0)})
			if err != nil {
				return err
			}
			if token, isNew := t.append(next[0]); isNew {
				if _, err := w.Write([]byte{token}); err != nil {
					return err
				}
			}
		}
		fmt.Fprintln(w)
		return nil
	})
}
