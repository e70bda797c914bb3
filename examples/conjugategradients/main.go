// Command conjugategradients solves a sparse system of equations on the GPU. The loop is part of a
// graph: the host launches it once, and kernels decide when it ends. The same loop on the host
// launches the kernels of each iteration and waits for them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"slices"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

//go:generate go run ../../tools/kernels kernels.cu

func main() {
	edge := flag.Int("edge", 256, "the grid has edge * edge points")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("conjugategradients: unexpected argument %q", flag.Arg(0))
	}
	a := poisson(*edge)
	b := slices.Repeat([]float64{1}, len(a.first)-1)

	x := must(safe.Open(0))
	kernels := must(LoadKernels(context.Background(), x, compile.Options{}))
	stream := must(safe.NewStream(x))
	s := newSolver(x, kernels, a, b)
	for _, loop := range []struct {
		name string
		run  func(*safe.Stream)
	}{
		{"loop in a graph", s.graphLoop(x, stream)},
		{"loop on the host", s.hostLoop},
	} {
		s.reset(b)
		start := time.Now()
		loop.run(stream)
		took := time.Since(start)
		end := must(s.state.Download())[0]
		residual := a.residual(must(s.x.Download()), b)
		each := took / time.Duration(max(end.Iterations, 1))
		fmt.Printf("%-16s  %d iterations, relative residual %.1e, %v each\n", loop.name, end.Iterations, residual, each)
		if !(residual < 2*tolerance) {
			log.Fatalf("the relative residual is %g, above %g", residual, 2*tolerance)
		}
	}
}

const tolerance = 1e-8 // of the residual, relative to b

// A solver solves one system. Its vectors are named as in kernels.cu.
type solver struct {
	kernels           *Kernels
	n                 int
	first, column     *safe.Buffer[int32]
	value, x, r, p, q *safe.Buffer[float64]
	state             *safe.Buffer[State]
}

func newSolver(x *safe.Context, kernels *Kernels, a matrix, b []float64) *solver {
	n := len(b)
	vector := func() *safe.Buffer[float64] { return must(safe.NewBuffer[float64](x, n)) }
	return &solver{
		kernels: kernels, n: n,
		first: must(safe.Upload(x, a.first)), column: must(safe.Upload(x, a.column)), value: must(safe.Upload(x, a.value)),
		x: vector(), r: vector(), p: vector(), q: vector(), state: must(safe.NewBuffer[State](x, 1)),
	}
}

// reset makes x the zero vector. The residual is then b, and so is the first direction.
func (s *solver) reset(b []float64) {
	bb := dot(b, b)
	check(s.x.Fill(0))
	check(s.r.CopyFromHost(b))
	check(s.p.CopyFromHost(b))
	check(s.state.CopyFromHost([]State{{Rr: bb, Goal: tolerance * tolerance * bb, Limit: uint32(10 * s.n)}}))
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

// iterate enqueues an iteration.
func (s *solver) iterate(stream *safe.Stream) {
	k, each, n := s.kernels, safe.Threads(s.n), int32(s.n)
	check(k.Multiply.Launch(stream, each, s.state, s.first, s.column, s.value, s.p, s.q, n))
	check(k.Advance.Launch(stream, each, s.state, s.p, s.q, s.x, s.r, n))
	check(k.Turn.Launch(stream, each, s.state, s.r, s.p, n))
	check(k.Finish.Launch(stream, one, s.state))
}

// graphLoop returns a function that launches a graph with the loop and waits for it.
func (s *solver) graphLoop(x *safe.Context, stream *safe.Stream) func(*safe.Stream) {
	g := must(safe.NewGraph(x))
	more := must(g.NewCondition(safe.ConditionOptions{Assign: true, Default: 1}))
	_, body, err := g.AddWhile(more)
	check(err)
	check(stream.CaptureTo(body, safe.CaptureToOptions{}, func() error {
		s.iterate(stream)
		return s.kernels.Repeat.Launch(stream, one, more, s.state)
	}))
	exec := must(g.Instantiate())
	check(exec.Upload(stream))
	check(stream.Synchronize())
	return func(stream *safe.Stream) {
		check(exec.Launch(stream))
		check(stream.Synchronize())
	}
}

// hostLoop launches each iteration, and looks at the residual after it.
func (s *solver) hostLoop(stream *safe.Stream) {
	for more := true; more; {
		s.iterate(stream)
		now := must(s.state.Download())[0] // waits for the kernels
		more = now.Rr > now.Goal && now.Iterations < now.Limit
	}
}

// A matrix has compressed rows: see kernels.cu.
type matrix struct {
	first, column []int32
	value         []float64
}

// poisson returns the matrix of Poisson's equation on a square: 4 times the value of each point of
// a grid, less its neighbours. Points outside of the grid are 0.
func poisson(edge int) (a matrix) {
	for y := range edge {
		for x := range edge {
			a.first = append(a.first, int32(len(a.column)))
			add := func(x, y int, v float64) {
				if x >= 0 && x < edge && y >= 0 && y < edge {
					a.column, a.value = append(a.column, int32(y*edge+x)), append(a.value, v)
				}
			}
			add(x, y-1, -1)
			add(x-1, y, -1)
			add(x, y, 4)
			add(x+1, y, -1)
			add(x, y+1, -1)
		}
	}
	a.first = append(a.first, int32(len(a.column)))
	return a
}

// residual is the length of b - A x, relative to that of b, on the host.
func (a matrix) residual(x, b []float64) float64 {
	r := slices.Clone(b)
	for i := range r {
		for k := a.first[i]; k < a.first[i+1]; k++ {
			r[i] -= a.value[k] * x[a.column[k]]
		}
	}
	return math.Sqrt(dot(r, r) / dot(b, b))
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
