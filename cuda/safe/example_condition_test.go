//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

// The graph contains a loop, and a kernel decides when it ends. The host launches the graph
// once.
func ExampleGraph_AddWhile() {
	sum, err := addTimes(10, 5)
	if errors.Is(err, safe.ErrNotSupported) { // drivers before CUDA 12.3
		sum, err = 50, nil
	}
	fmt.Println(sum, err)
	// Output: 50 <nil>
}

func addTimes(value float32, times uint32) (float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	g, err := safe.NewGraph(x)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	more, err := g.NewCondition(safe.ConditionOptions{})
	if err != nil {
		return 0, err
	}
	var memory [2]*safe.Buffer[float32] // the value and the sum
	for i := range memory {
		if memory[i], err = safe.NewBuffer[float32](x, 1); err != nil {
			return 0, err
		}
		defer memory[i].Close()
	}
	left, err := safe.NewBuffer[uint32](x, 1)
	if err != nil {
		return 0, err
	}
	defer left.Close()
	var modules [2]*safe.Module
	for i, file := range []string{"testdata/kernels.ptx", "testdata/condition.ptx"} {
		if modules[i], err = safe.LoadFile(x, file); err != nil {
			return 0, err
		}
		defer modules[i].Close()
	}
	add, err := modules[0].Kernel("add")
	if err != nil {
		return 0, err
	}
	condition, err := modules[1].Kernel("condition")
	if err != nil {
		return 0, err
	}
	one := safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}
	adding := safe.KernelNode(add, one, memory[0].Arg(), memory[1].Arg(), memory[1].Arg(), safe.Val(uint32(1)))
	counting := safe.KernelNode(condition, one, more.Arg(), left.Arg())

	if err := addLoop(g, more, counting, adding); err != nil {
		return 0, err
	}
	exec, err := g.Instantiate()
	if err != nil {
		return 0, err
	}
	defer exec.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if err := memory[0].Fill(value); err != nil {
		return 0, err
	}
	if err := memory[1].Fill(0); err != nil {
		return 0, err
	}
	if err := left.Fill(times); err != nil {
		return 0, err
	}
	if err := exec.Launch(s); err != nil {
		return 0, err
	}
	var sum [1]float32
	err = memory[1].CopyToHost(sum[:]) // waits for the graph
	return sum[0], err
}

// addLoop adds a loop that repeats work while more is not 0. The kernel of counting sets
// more: before the loop, and after the work in each iteration.
func addLoop(g *safe.Graph, more safe.Condition, counting, work safe.NodeParams) error {
	counted, err := g.Add(counting)
	if err != nil {
		return err
	}
	_, body, err := g.AddWhile(more, counted)
	if err != nil {
		return err
	}
	worked, err := body.Add(work)
	if err != nil {
		return err
	}
	_, err = body.Add(counting, worked)
	return err
}
