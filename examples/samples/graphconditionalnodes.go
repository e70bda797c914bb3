package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A decision is made on the device: by a number there, which the host never looks
// at, a value is changed in one way or another.
type decision struct {
	add       *safe.Kernel
	condition *safe.Kernel // holds as long as there is something to count down
	choose    *safe.Kernel // has a condition be a number
	stream    *safe.Stream
	number    *safe.Buffer[uint32]
	value     *safe.Buffer[float32]
}

// graphConditionalNodes makes a graph with an if, one with a loop and one with a switch.
// Each is launched for several numbers.
func graphConditionalNodes(x *safe.Context, m *safe.Module, w io.Writer) error {
	var version int32
	if err := driver.CuDriverGetVersion(&version); err != nil {
		return err
	}
	if version < 12080 {
		fmt.Fprintln(w, "graphConditionalNodes: needs a driver for CUDA 12.8")
		return nil
	}
	c, err := safe.Load(x, conditions)
	if err != nil {
		return err
	}
	defer c.Close()
	d, err := newDecision(x, m, c)
	if err != nil {
		return err
	}
	defer d.close()
	for _, kind := range []struct {
		name    string
		build   func(*safe.Graph, *decision) error
		numbers []uint32
		want    []float32 // of a value that is 1 before
	}{
		{"if", addIf, []uint32{0, 1}, []float32{1, 2}},
		{"if and else", addIfElse, []uint32{0, 1}, []float32{0, 2}},
		{"while", addWhile, []uint32{0, 1, 10}, []float32{1, 2, 1024}},
		{"switch", addSwitch, []uint32{0, 1, 2, 3}, []float32{10, 20, 30, 1}},
	} {
		got, err := decide(x, d, kind.build, kind.numbers)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		if !slices.Equal(got, kind.want) {
			return fmt.Errorf("%s: %v make %v, not %v", kind.name, kind.numbers, got, kind.want)
		}
		fmt.Fprintf(w, "graphConditionalNodes: %s makes %v of %v\n", kind.name, got, kind.numbers)
	}
	return nil
}

// chosen adds a kernel that makes the number a condition.
func (d *decision) chosen(g *safe.Graph) (c safe.Condition, n safe.Node, err error) {
	if c, err = g.NewCondition(safe.ConditionOptions{}); err != nil {
		return c, n, err
	}
	n, err = g.Add(safe.KernelNode(d.choose, one, c.Arg(), d.number.Arg()))
	return c, n, err
}

// addIf doubles the value if the number is not 0.
func addIf(g *safe.Graph, d *decision) error {
	c, chosen, err := d.chosen(g)
	if err != nil {
		return err
	}
	_, body, err := g.AddIf(c, chosen)
	if err != nil {
		return err
	}
	_, err = body.Add(d.double())
	return err
}

// addIfElse doubles the value, or clears it.
func addIfElse(g *safe.Graph, d *decision) error {
	c, chosen, err := d.chosen(g)
	if err != nil {
		return err
	}
	_, then, otherwise, err := g.AddIfElse(c, chosen)
	if err != nil {
		return err
	}
	if _, err := then.Add(d.double()); err != nil {
		return err
	}
	_, err = otherwise.Add(safe.FillNode(d.value, 0))
	return err
}

// addWhile doubles the value as often as the number says. The kernel that sets the
// condition comes before the loop, and at the end of its body.
func addWhile(g *safe.Graph, d *decision) error {
	c, err := g.NewCondition(safe.ConditionOptions{})
	if err != nil {
		return err
	}
	count := safe.KernelNode(d.condition, one, c.Arg(), d.number.Arg())
	first, err := g.Add(count)
	if err != nil {
		return err
	}
	_, body, err := g.AddWhile(c, first)
	if err != nil {
		return err
	}
	doubled, err := body.Add(d.double())
	if err != nil {
		return err
	}
	_, err = body.Add(count, doubled)
	return err
}

// addSwitch has the value be 10, 20 or 30 by the number, and leaves it as it is for
// any other.
func addSwitch(g *safe.Graph, d *decision) error {
	c, chosen, err := d.chosen(g)
	if err != nil {
		return err
	}
	_, bodies, err := g.AddSwitch(c, 3, chosen)
	if err != nil {
		return err
	}
	for i, body := range bodies {
		if _, err := body.Add(safe.FillNode(d.value, float32(10*(i+1)))); err != nil {
			return err
		}
	}
	return nil
}

// double is value += value.
func (d *decision) double() safe.NodeParams {
	return safe.KernelNode(d.add, one, d.value.Arg(), d.value.Arg(), d.value.Arg(), safe.Val(uint32(1)))
}

// decide builds a graph, and tells what it makes of the value 1 by these numbers.
func decide(x *safe.Context, d *decision, build func(*safe.Graph, *decision) error, numbers []uint32) ([]float32, error) {
	g, err := safe.NewGraph(x)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	if err := build(g, d); err != nil {
		return nil, err
	}
	exec, err := g.Instantiate()
	if err != nil {
		return nil, err
	}
	defer exec.Close()
	values := make([]float32, len(numbers))
	for i, number := range numbers {
		if err := d.number.CopyFromHost([]uint32{number}); err != nil {
			return nil, err
		}
		if err := d.value.Fill(1); err != nil {
			return nil, err
		}
		if err := exec.Launch(d.stream); err != nil {
			return nil, err
		}
		if err := d.value.CopyToHost(values[i : i+1]); err != nil { // when the graph is done
			return nil, err
		}
	}
	return values, nil
}

func newDecision(x *safe.Context, m, conditions *safe.Module) (d *decision, err error) {
	d = &decision{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.add, err = m.Kernel("add"); err != nil {
		return nil, err
	}
	if d.condition, err = conditions.Kernel("condition"); err != nil {
		return nil, err
	}
	if d.choose, err = conditions.Kernel("choose"); err != nil {
		return nil, err
	}
	if d.stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	if d.number, err = safe.NewBuffer[uint32](x, 1); err != nil {
		return nil, err
	}
	d.value, err = safe.NewBuffer[float32](x, 1)
	return d, err
}

func (d *decision) close() {
	d.value.Close()
	d.number.Close()
	d.stream.Close()
}
