// Command shared is a C library whose function CudabindGraphs uses streams, memory and graphs of
// package safe in the process of another program, such as one that runs under PyTorch's profiler:
//
//	go build -buildmode=c-shared -o libshared.so ./tools/gpu/shared
package main

import "C"

import (
	"errors"
	"fmt"
	"os"

	"github.com/cudabind/cudabind/cuda/safe"
)

func main() { os.Exit(int(CudabindGraphs())) }

// kept are objects of the first call, which later ones use again.
var kept *objects

// CudabindGraphs returns 0 if everything was computed as it should be. Executables of the first
// call are launched by later ones, too.
//
//export CudabindGraphs
func CudabindGraphs() C.int {
	var err error
	if kept == nil {
		kept, err = newObjects()
	}
	if err == nil {
		err = kept.use()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const length = 1 << 16

type objects struct {
	s        *safe.Stream
	a, b     *safe.Buffer[float32]
	captured *safe.GraphExec
	memory   *safe.GraphExec
	batch    *safe.Batch
}

func newObjects() (*objects, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	o := &objects{}
	if o.s, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	for _, b := range []**safe.Buffer[float32]{&o.a, &o.b} {
		if *b, err = safe.NewZeroed[float32](x, length); err != nil {
			return nil, err
		}
	}
	o.captured, err = o.s.CaptureExecutable(func() error {
		return errors.Join(o.a.FillAsync(o.s, 3), o.b.CopyFromAsync(o.s, o.a))
	})
	if err != nil {
		return nil, err
	}
	if o.memory, err = o.withMemory(x); err != nil {
		return nil, err
	}
	if o.batch, err = safe.NewBatch(x); err != nil {
		return nil, err
	}
	return o, errors.Join(o.batch.LaunchGraph(o.captured), safe.BatchFill[float32](o.batch, o.a, 5))
}

// withMemory returns the executable of a graph that fills memory of its own.
func (o *objects) withMemory(x *safe.Context) (*safe.GraphExec, error) {
	g, err := safe.NewGraph(x)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	room, node, err := safe.AddAlloc[float32](g, length)
	if err != nil {
		return nil, err
	}
	if node, err = g.Add(safe.FillNode(room, 1), node); err != nil {
		return nil, err
	}
	if _, err = g.Add(safe.FreeNode(room), node); err != nil {
		return nil, err
	}
	return g.Instantiate()
}

func (o *objects) use() error {
	for range 100 {
		if err := errors.Join(o.captured.Launch(o.s), o.memory.Launch(o.s), o.batch.Submit(o.s)); err != nil {
			return err
		}
	}
	a, err := o.a.Download()
	if err != nil {
		return err
	}
	b, err := o.b.Download()
	if err != nil {
		return err
	}
	if a[0] != 5 || b[length-1] != 3 {
		return fmt.Errorf("the buffers hold %v and %v, not 5 and 3", a[0], b[length-1])
	}
	return nil
}
