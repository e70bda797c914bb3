package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// equations are linear ones, a times x is b, which are solved in steps from one
// guess to a better one.
type equations struct {
	step, distance *safe.Kernel
	stream         *safe.Stream
	a, b           *safe.Buffer[float32]
	guesses        [2]*safe.Buffer[float32] // each step reads one and writes the other
	distant        *safe.Buffer[float32]    // how far the guesses are apart
	out            *safe.Pinned[float32]
}

// jacobiCudaGraphs solves equations by an executable that does one step. The guesses
// change their places with each, so that the executable is changed as well: by a graph
// that is captured anew, or in the one node that differs.
func jacobiCudaGraphs(x *safe.Context, m *safe.Module, w io.Writer) error {
	const n = 256
	a, b := equationsOf(n)
	want := eliminate(a, b)
	q, err := newEquations(x, m, a, b)
	if err != nil {
		return err
	}
	defer q.close()
	for _, way := range []struct {
		name  string
		solve func(*safe.Context, *equations) (result *safe.Buffer[float32], steps int, err error)
	}{{"GraphExec.Update", byUpdate}, {"GraphExec.Set", bySet}} {
		start := time.Now()
		result, steps, err := way.solve(x, q)
		if err != nil {
			return err
		}
		took := time.Since(start)
		got := make([]float32, n)
		if err := result.CopyToHost(got); err != nil {
			return err
		}
		for i := range got {
			if math.Abs(float64(got[i])-want[i]) > 1e-4 {
				return fmt.Errorf("unknown %d is %v, not %v", i, got[i], want[i])
			}
		}
		fmt.Fprintf(w, "jacobiCudaGraphs: %d equations are solved by %s, took %v and %d steps\n", n, way.name, took, steps)
	}
	return nil
}

// byUpdate captures each step into a graph, and has the executable do what that
// does.
func byUpdate(_ *safe.Context, q *equations) (*safe.Buffer[float32], int, error) {
	var exec *safe.GraphExec
	defer func() { exec.Close() }()
	return q.solve(func(from, to *safe.Buffer[float32]) (*safe.GraphExec, error) {
		g, err := captureStep(q, from, to)
		if err != nil {
			return nil, err
		}
		defer g.Close()
		if exec == nil {
			exec, err = g.Instantiate()
			return exec, err
		}
		return exec, exec.Update(g)
	})
}

func captureStep(q *equations, from, to *safe.Buffer[float32]) (*safe.Graph, error) {
	return q.stream.Capture(func() error {
		n := safe.Val(uint32(q.b.Len()))
		if err := q.step.Launch(q.stream, safe.Threads(q.b.Len()), to.Arg(), from.Arg(), q.a.Arg(), q.b.Arg(), n); err != nil {
			return err
		}
		if err := q.distance.Launch(q.stream, one, q.distant.Arg(), from.Arg(), to.Arg(), n); err != nil {
			return err
		}
		return q.distant.CopyToHostAsync(q.stream, q.out)
	})
}

// bySet makes the graph by hand, and then knows the node to change. The other two
// stay as they are: the distance is the same both ways.
func bySet(x *safe.Context, q *equations) (*safe.Buffer[float32], int, error) {
	g, err := safe.NewGraph(x)
	if err != nil {
		return nil, 0, err
	}
	defer g.Close()
	step, err := addStep(g, q)
	if err != nil {
		return nil, 0, err
	}
	exec, err := g.Instantiate()
	if err != nil {
		return nil, 0, err
	}
	defer exec.Close()
	return q.solve(func(from, to *safe.Buffer[float32]) (*safe.GraphExec, error) {
		return exec, exec.Set(step, q.stepWork(from, to))
	})
}

// addStep adds a step to a graph, and what tells how far it goes.
func addStep(g *safe.Graph, q *equations) (safe.Node, error) {
	from, to := q.guesses[0], q.guesses[1]
	step, err := g.Add(q.stepWork(from, to))
	if err != nil {
		return safe.Node{}, err
	}
	distance, err := g.Add(safe.KernelNode(q.distance, one, q.distant.Arg(), from.Arg(), to.Arg(), safe.Val(uint32(q.b.Len()))), step)
	if err != nil {
		return safe.Node{}, err
	}
	_, err = g.Add(safe.CopyNode(q.out, q.distant), distance)
	return step, err
}

func (q *equations) stepWork(from, to *safe.Buffer[float32]) safe.NodeParams {
	n := q.b.Len()
	return safe.KernelNode(q.step, safe.Threads(n), to.Arg(), from.Arg(), q.a.Arg(), q.b.Arg(), safe.Val(uint32(n)))
}

// solve goes on until a step changes next to nothing. Each is a launch of the
// executable that next returns.
func (q *equations) solve(next func(from, to *safe.Buffer[float32]) (*safe.GraphExec, error)) (*safe.Buffer[float32], int, error) {
	from, to := q.guesses[0], q.guesses[1]
	if err := from.FillAsync(q.stream, 0); err != nil {
		return nil, 0, err
	}
	const most = 1000
	for steps := 1; steps <= most; steps++ {
		exec, err := next(from, to)
		if err != nil {
			return nil, 0, err
		}
		if err := exec.Launch(q.stream); err != nil {
			return nil, 0, err
		}
		if err := q.stream.Synchronize(); err != nil {
			return nil, 0, err
		}
		if q.out.Data()[0] < 1e-4 {
			return to, steps, nil
		}
		from, to = to, from
	}
	return nil, 0, fmt.Errorf("after %d steps the guesses are still %v apart", most, q.out.Data()[0])
}

// equationsOf makes n equations. The middle of each row of a outweighs the rest,
// without which the steps would lead nowhere.
func equationsOf(n int) (a, b []float32) {
	a, b = make([]float32, n*n), make([]float32, n)
	for i := range n {
		for j := range n {
			a[i*n+j] = 1 / (1 + float32(max(i-j, j-i)))
		}
		a[i*n+i] = 20
		b[i] = float32(i % 10)
	}
	return a, b
}

// eliminate solves the equations on the host, in another way.
func eliminate(a, b []float32) []float64 {
	n := len(b)
	rows := make([][]float64, n) // with b at the end
	for i := range rows {
		for _, v := range a[i*n : (i+1)*n] {
			rows[i] = append(rows[i], float64(v))
		}
		rows[i] = append(rows[i], float64(b[i]))
	}
	for i, row := range rows {
		for _, below := range rows[i+1:] {
			f := below[i] / row[i]
			for j := i; j <= n; j++ {
				below[j] -= f * row[j]
			}
		}
	}
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		x[i] = rows[i][n]
		for j := i + 1; j < n; j++ {
			x[i] -= rows[i][j] * x[j]
		}
		x[i] /= rows[i][i]
	}
	return x
}

func newEquations(x *safe.Context, m *safe.Module, a, b []float32) (q *equations, err error) {
	q = &equations{}
	defer func() {
		if err != nil {
			q.close()
		}
	}()
	if q.step, err = m.Kernel("jacobi"); err != nil {
		return nil, err
	}
	if q.distance, err = m.Kernel("distance"); err != nil {
		return nil, err
	}
	if q.stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	if q.out, err = safe.NewPinned[float32](x, 1); err != nil {
		return nil, err
	}
	for _, v := range []struct {
		buffer **safe.Buffer[float32]
		n      int
	}{{&q.a, len(a)}, {&q.b, len(b)}, {&q.guesses[0], len(b)}, {&q.guesses[1], len(b)}, {&q.distant, 1}} {
		if *v.buffer, err = safe.NewBuffer[float32](x, v.n); err != nil {
			return nil, err
		}
	}
	if err := q.a.CopyFromHost(a); err != nil {
		return nil, err
	}
	return q, q.b.CopyFromHost(b)
}

// close closes what there is: a nil object closes as a closed one does.
func (q *equations) close() {
	for _, c := range []io.Closer{q.distant, q.guesses[1], q.guesses[0], q.b, q.a, q.out, q.stream} {
		c.Close()
	}
}
