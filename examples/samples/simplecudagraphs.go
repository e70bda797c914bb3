package main

import (
	"fmt"
	"io"

	"github.com/cudabind/cudabind/cuda/safe"
)

// A reduction adds values up: parts of them beside each other on streams of their
// own, and then the parts' sums.
type reduction struct {
	sum     *safe.Kernel
	stream  *safe.Stream   // where it begins and ends
	streams []*safe.Stream // of the parts
	begun   *safe.Event
	ended   []*safe.Event // a part each

	in     *safe.Pinned[float32]
	values *safe.Buffer[float32]
	parts  *safe.Buffer[float32]
	total  *safe.Buffer[float32]
	out    *safe.Pinned[float32]
}

// simpleCudaGraphs captures a reduction once, and runs it for several inputs by one
// call each. A Go function is part of it.
func simpleCudaGraphs(x *safe.Context, m *safe.Module, w io.Writer) error {
	const n, parts = 1 << 12, 4
	r, err := newReduction(x, m, n, parts)
	if err != nil {
		return err
	}
	defer r.close()
	totals := make(chan float32, 1) // has room, so that the function does not wait
	graph, err := capture(r, func() { totals <- r.out.Data()[0] })
	if err != nil {
		return err
	}
	defer graph.Close()
	nodes, err := graph.Nodes()
	if err != nil {
		return err
	}
	exec, err := graph.Instantiate()
	if err != nil {
		return err
	}
	defer exec.Close()

	const rounds = 5
	for round := range rounds {
		for i := range r.in.Data() {
			r.in.Data()[i] = float32(round)
		}
		if err := exec.Launch(r.stream); err != nil {
			return err
		}
		if err := r.stream.Synchronize(); err != nil {
			return err
		}
		if got, want := <-totals, float32(round*n); got != want {
			return fmt.Errorf("the total of round %d is %v, not %v", round, got, want)
		}
	}
	fmt.Fprintf(w, "simpleCudaGraphs: %d replays of a graph of %d nodes are right\n", rounds, len(nodes))
	return nil
}

// capture makes a graph of a reduction, with a call of then at its end. Nothing of
// it runs now. The events become edges of the graph.
func capture(r *reduction, then func()) (*safe.Graph, error) {
	return r.stream.Capture(func() error {
		if err := r.values.CopyFromHostAsync(r.stream, r.in); err != nil {
			return err
		}
		if err := r.stream.Record(r.begun); err != nil {
			return err
		}
		for i, s := range r.streams {
			if err := s.WaitEvent(r.begun); err != nil { // from here on s captures too
				return err
			}
			if err := sumPart(r, i); err != nil {
				return err
			}
			if err := s.Record(r.ended[i]); err != nil {
				return err
			}
			if err := r.stream.WaitEvent(r.ended[i]); err != nil {
				return err
			}
		}
		if err := r.sum.Launch(r.stream, one, r.total.Arg(), r.parts.Arg(), safe.Val(uint32(r.parts.Len()))); err != nil {
			return err
		}
		if err := r.total.CopyToHostAsync(r.stream, r.out); err != nil {
			return err
		}
		_, err := r.stream.LaunchHostFunc(then)
		return err
	})
}

// sumPart adds part i up, on its stream.
func sumPart(r *reduction, i int) error {
	n := r.values.Len() / len(r.streams)
	part, err := r.values.Slice(i*n, (i+1)*n)
	if err != nil {
		return err
	}
	total, err := r.parts.Slice(i, i+1)
	if err != nil {
		return err
	}
	return r.sum.Launch(r.streams[i], one, total.Arg(), part.Arg(), safe.Val(uint32(n)))
}

func newReduction(x *safe.Context, m *safe.Module, n, parts int) (r *reduction, err error) {
	r = &reduction{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.sum, err = m.Kernel("sum"); err != nil {
		return nil, err
	}
	if r.stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	if r.streams, err = newStreams(x, parts); err != nil {
		return nil, err
	}
	if r.begun, err = safe.NewEventWith(x, safe.EventOptions{DisableTiming: true}); err != nil {
		return nil, err
	}
	if r.ended, err = newEvents(x, parts, safe.EventOptions{DisableTiming: true}); err != nil {
		return nil, err
	}
	if r.in, err = safe.NewPinned[float32](x, n); err != nil {
		return nil, err
	}
	if r.out, err = safe.NewPinned[float32](x, 1); err != nil {
		return nil, err
	}
	if r.values, err = safe.NewBuffer[float32](x, n); err != nil {
		return nil, err
	}
	if r.parts, err = safe.NewBuffer[float32](x, parts); err != nil {
		return nil, err
	}
	r.total, err = safe.NewBuffer[float32](x, 1)
	return r, err
}

// close closes what there is: a nil object closes as a closed one does.
func (r *reduction) close() {
	for _, c := range []io.Closer{r.total, r.parts, r.values, r.out, r.in, r.begun, r.stream} {
		c.Close()
	}
	closeAll(r.ended)
	closeAll(r.streams)
}
