package main

import (
	"errors"
	"strconv"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// growth measures operations of package safe in programs of growing size: bars of equal length show that the size does
// not matter. The same calls of package driver show how much of the growth is CUDA's own.
var growth = group{
	name:    "growth",
	columns: []string{"ns", "to the smallest", "raw ns"},
	plot:    []string{"ns", "to the smallest"},
	run:     grow,
}

// grown is an operation whose program has a size.
type grown struct {
	name  string
	sizes []int
	short []int
	// open makes a program of a size, and the row to measure in it. Its operation has parts,
	// which the time is divided by.
	open func(g *gpu, size int) (r row, parts int, close func() error, err error)
}

var grownOperations = []grown{
	{"NewBuffer and Close, beside so many buffers", []int{1000, 10_000, 100_000, 1_000_000}, []int{10, 100}, besideBuffers},
	{"launch, beside so many buffers", []int{1000, 10_000, 100_000, 1_000_000}, []int{10, 100}, launchBesideBuffers},
	{"launch on each of so many streams", []int{10, 100, 1000, 10_000}, []int{1, 10}, onStreams},
	{"a node of a graph of so many: build", []int{100, 1000, 10_000, 100_000}, []int{10, 100}, buildLong},
	{"a node of a graph of so many: instantiate", []int{100, 1000, 10_000, 100_000}, []int{10, 100}, instantiateLong},
	{"a node of a graph of so many: replay", []int{100, 1000, 10_000, 100_000}, []int{10, 100}, replayLong},
	{"launch with so many bytes of arguments", []int{64, 512, 4064}, []int{64, 4064}, launchWide},
}

func grow(g *gpu, e effort) ([]*line, error) {
	var lines []*line
	for _, o := range grownOperations {
		sizes, first := o.sizes, (*line)(nil)
		if e.short {
			sizes = o.short
		}
		for _, size := range sizes {
			l, err := o.measure(g, e, size)
			if err != nil {
				return nil, err
			}
			if first == nil {
				first = l
			}
			l.ratio("to the smallest", "ns", first)
			lines = append(lines, l)
		}
	}
	return lines, nil
}

func (o *grown) measure(g *gpu, e effort, size int) (*line, error) {
	r, parts, close, err := o.open(g, size)
	if err != nil {
		return nil, errors.Join(err, close())
	}
	r.name = o.name
	result, err := e.meter.measure(&r)
	if err := errors.Join(err, close()); err != nil {
		return nil, err
	}
	l := newLine(o.name, strconv.Itoa(size))
	l.Values["ns"] = result.Safe.Median / float64(parts)
	if result.Raw != nil {
		l.Values["raw ns"] = result.Raw.Median / float64(parts)
	}
	return l, nil
}

// fewBytes is the size of buffers of which there are many.
const fewBytes = 256

func newBuffers(g *gpu, n int) (buffers []*safe.Buffer[byte], close func() error, err error) {
	close = func() error {
		var errs []error
		for _, b := range buffers {
			errs = append(errs, b.Close())
		}
		return errors.Join(errs...)
	}
	for range n {
		b, err := safe.NewBuffer[byte](g.ctx, fewBytes)
		if err != nil {
			return nil, close, err
		}
		buffers = append(buffers, b)
	}
	return buffers, close, nil
}

func besideBuffers(g *gpu, size int) (row, int, func() error, error) {
	_, close, err := newBuffers(g, size)
	return row{safe: times(func() error {
		b, err := safe.NewBuffer[byte](g.ctx, fewBytes)
		if err != nil {
			return err
		}
		return b.Close()
	})}, 1, close, err
}

// launchBesideBuffers uses the buffers in turn.
func launchBesideBuffers(g *gpu, size int) (row, int, func() error, error) {
	buffers, close, err := newBuffers(g, size)
	i := 0
	return row{batch: queue, prepare: g.idle, safe: times(func() error {
		i = (i + 1) % len(buffers)
		return g.three.Launch(g.stream, one, buffers[i].Arg(), safe.Val(uint32(0)), safe.Val(float32(0)))
	})}, 1, close, err
}

// onStreams uses the streams in turn.
func onStreams(g *gpu, size int) (row, int, func() error, error) {
	streams, err := newStreams(g, size)
	i := 0
	return row{batch: queue, prepare: g.idle, safe: times(func() error {
		i = (i + 1) % len(streams)
		return g.nothing.Launch(streams[i], one)
	})}, 1, func() error { return closeAll(streams) }, err
}

// newLong makes a graph of kernels, each after the one before.
func newLong(g *gpu, nodes int) (*safe.Graph, error) {
	specs := make([]safe.NodeSpec, nodes)
	for i := range specs {
		if specs[i].Params = safe.KernelNode(g.nothing, one); i > 0 {
			specs[i].After = []int{i - 1}
		}
	}
	graph, err := safe.NewGraph(g.ctx)
	if err != nil {
		return nil, err
	}
	if _, err := graph.AddAll(specs...); err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return graph, nil
}

func nothingToClose() error { return nil }

func buildLong(g *gpu, size int) (row, int, func() error, error) {
	return row{safe: times(func() error {
		graph, err := newLong(g, size)
		if err != nil {
			return err
		}
		return graph.Close()
	})}, size, nothingToClose, nil
}

func instantiateLong(g *gpu, size int) (row, int, func() error, error) {
	graph, err := newLong(g, size)
	if err != nil {
		return row{}, 0, nothingToClose, err
	}
	return row{raw: times(func() error {
		var exec driver.CUgraphExec
		if err := driver.CuGraphInstantiate(&exec, graph.Raw(), 0); err != nil {
			return err
		}
		return driver.CuGraphExecDestroy(exec)
	}), safe: times(func() error {
		exec, err := graph.Instantiate()
		if err != nil {
			return err
		}
		return exec.Close()
	})}, size, graph.Close, nil
}

// replayLong launches the graph and waits.
func replayLong(g *gpu, size int) (row, int, func() error, error) {
	graph, err := newLong(g, size)
	if err != nil {
		return row{}, 0, nothingToClose, err
	}
	exec, err := graph.Instantiate()
	if err != nil {
		return row{}, 0, graph.Close, err
	}
	return row{safe: times(func() error {
			return errors.Join(exec.Launch(g.stream), g.stream.Synchronize())
		})}, size, func() error {
			return errors.Join(exec.Close(), graph.Close())
		}, nil
}

// launchWide passes one argument of so many bytes.
func launchWide(g *gpu, size int) (row, int, func() error, error) {
	k, err := g.module.Kernel("wide" + strconv.Itoa(size))
	var (
		small  [64]byte
		middle [512]byte
		large  [4064]byte
	)
	arg := map[int]func() safe.Arg{
		64:   func() safe.Arg { return safe.Ref(&small) },
		512:  func() safe.Arg { return safe.Ref(&middle) },
		4064: func() safe.Arg { return safe.Ref(&large) },
	}[size]
	return row{batch: queue, prepare: g.idle, safe: times(func() error {
		return k.Launch(g.stream, one, arg())
	})}, 1, nothingToClose, err
}
