package main

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// op does an operation n times.
type op func(n int) error

// times is an op that calls f n times.
func times(f func() error) op {
	return func(n int) error {
		for range n {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
}

// row is an operation, in up to three ways.
type row struct {
	name         string
	c, raw, safe op           // nil where there is none
	inDo         bool         // safe runs with the context current as well
	batch        int          // at most so many operations between two prepares, 0 for any number
	prepare      func() error // makes the GPU ready, outside of the measured time
	bytes        int          // that each operation copies
	always       bool         // measured also when it is not asked for
	targets      []target
}

// meter measures rows.
type meter struct {
	rounds  int
	round   time.Duration            // that one way takes in each round, about
	current func(func() error) error // calls a function with the context current
}

// way is one of a row's ways of doing the same.
type way struct {
	row   *row
	op    op
	in    func(func() error) error
	n     int // operations in each round
	means []float64
}

// measure does the ways of a row in turns. The error is also in the result.
func (m *meter) measure(r *row) (*result, error) {
	result := &result{Name: r.name, Bytes: r.bytes}
	err := m.fill(result, r)
	if err != nil {
		result.Error = err.Error()
		result.unsupported = unsupported(err)
	}
	return result, err
}

func (m *meter) fill(result *result, r *row) error {
	inSafe := alone
	if r.inDo {
		inSafe = m.current
	}
	c, raw, safe := &way{op: r.c, in: m.current}, &way{op: r.raw, in: m.current}, &way{op: r.safe, in: inSafe}
	var ways []*way
	for _, w := range []*way{c, raw, safe} {
		if w.op == nil {
			continue
		}
		w.row = r
		ways = append(ways, w)
	}
	if err := m.inTurns(ways, m.rounds); err != nil {
		return err
	}
	result.C = c.figures()
	for _, w := range []struct {
		*way
		figures **figures
	}{{raw, &result.Raw}, {safe, &result.Safe}} {
		if w.op == nil {
			continue
		}
		*w.figures = w.way.figures()
		var err error
		if (*w.figures).Allocs, err = w.allocs(); err != nil {
			return err
		}
	}
	return nil
}

// inTurns has the ways do rounds in turns. On a machine whose speed drifts, the rounds of one turn compare: see paired.
func (m *meter) inTurns(ways []*way, rounds int) error {
	for _, w := range ways {
		if err := w.calibrate(m.round); err != nil {
			return err
		}
	}
	for range rounds {
		for _, w := range ways {
			t, err := w.time(w.n)
			if err != nil {
				return err
			}
			w.means = append(w.means, float64(t)/float64(w.n))
		}
	}
	return nil
}

// inTurns has the ways do many short rounds in turns.
func (e effort) inTurns(ways []*way) error { return e.meter.inTurns(ways, e.of(60, 2)) }

// paired is the median of what f makes of the rounds of w and those of another way in the same turns.
func paired(w, other *way, f func(w, other float64) float64) float64 {
	values := make([]float64, len(w.means))
	for i := range values {
		values[i] = f(w.means[i], other.means[i])
	}
	return median(values)
}

func ratio(a, b float64) float64      { return a / b }
func difference(a, b float64) float64 { return a - b }

func alone(f func() error) error { return f() }

// calibrate finds how many operations a round has. The first operation does
// not count: it can take milliseconds, to load a kernel or to fill a pool.
func (w *way) calibrate(round time.Duration) error {
	const enough = 1 << 24
	if _, err := w.time(1); err != nil {
		return err
	}
	for n := 1; ; n *= 2 {
		t, err := w.time(n)
		if err != nil {
			return err
		}
		if t >= round/4 || n >= enough {
			w.n = max(1, int(float64(n)*float64(round)/float64(max(t, 1))))
			return nil
		}
	}
}

// time is how long n operations take, without the preparations.
func (w *way) time(n int) (total time.Duration, err error) {
	for n > 0 && err == nil {
		k := w.stretch(n)
		err = w.prepared(func() error {
			start := time.Now()
			err := w.op(k)
			total += time.Since(start)
			return err
		})
		n -= k
	}
	return total, err
}

// allocs is how many allocations an operation costs, in hundredths. Of three
// tries the least counts: the runtime allocates now and then for itself.
func (w *way) allocs() (float64, error) {
	least := math.Inf(1)
	for range 3 {
		n := w.stretch(w.n)
		err := w.prepared(func() error {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := w.op(n)
			runtime.ReadMemStats(&after)
			least = min(least, float64(after.Mallocs-before.Mallocs)/float64(n))
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return math.Round(100*least) / 100, nil
}

// stretch is how many of n operations can be done at once.
func (w *way) stretch(n int) int {
	if w.row.batch > 0 {
		return min(n, w.row.batch)
	}
	return n
}

// prepared calls f after the row's preparation.
func (w *way) prepared(f func() error) error {
	if w.row.prepare != nil {
		if err := w.row.prepare(); err != nil {
			return err
		}
	}
	return w.in(f)
}

// figures sums the rounds up, nil where there were none.
func (w *way) figures() *figures {
	if len(w.means) == 0 {
		return nil
	}
	return &figures{Median: median(w.means), Min: slices.Min(w.means), Operations: w.n}
}

// median is the middle of values, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
