package sparse

import (
	"math"
	"os"
	"sync"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMultiply compares products with the host's: of goroutines, and of a graph whose matrix was closed.
func TestMultiply(t *testing.T) {
	if os.Getenv("CUDABIND_REQUIRE_GPU") == "" {
		t.Skip("needs cuSPARSE and a GPU")
	}
	const rows, cols = 1000, 700
	var first, column []int32
	var value []float32
	for row := range rows {
		first = append(first, int32(len(value)))
		for k := range row % 9 {
			column, value = append(column, int32((row*31+k*97)%cols)), append(value, float32(row%7-k))
		}
	}
	first = append(first, int32(len(value)))
	c := must(safe.Open(0))
	defer c.Close()
	i, k, v := must(safe.Upload(c, first)), must(safe.Upload(c, column)), must(safe.Upload(c, value))
	m := must(New(c, cols, i, k, v))

	vector := func(seed int) (x []float32, want []float64) {
		for n := range cols {
			x = append(x, float32((n*seed)%13))
		}
		for row := range rows {
			sum := 0.0
			for n := first[row]; n < first[row+1]; n++ {
				sum += float64(value[n]) * float64(x[column[n]])
			}
			want = append(want, sum)
		}
		return x, want
	}
	compare := func(y *safe.Buffer[float32], want []float64) {
		got, err := y.Download()
		if err != nil {
			t.Error(err)
			return
		}
		for row := range want {
			if !(math.Abs(float64(got[row])-want[row]) < 1e-3) {
				t.Errorf("row %d is %v, not %v", row, got[row], want[row])
				return
			}
		}
	}
	var all sync.WaitGroup
	for seed := range 8 {
		s := must(safe.NewStream(c))
		defer s.Close()
		x, want := vector(seed)
		from, to := must(safe.Upload(c, x)), must(safe.NewBuffer[float32](c, rows))
		all.Go(func() {
			for range 50 {
				if err := m.Multiply(s, from, to); err != nil {
					t.Error(err)
				}
			}
			compare(to, want)
		})
	}
	all.Wait()

	s := must(safe.NewStream(c))
	defer s.Close()
	from, to := must(safe.NewBuffer[float32](c, cols)), must(safe.NewBuffer[float32](c, rows))
	e := must(s.CaptureExecutable(func() error { return m.Multiply(s, from, to) }))
	check(t, m.Close())
	for seed := range 3 {
		x, want := vector(seed + 10)
		check(t, from.CopyFromHost(x))
		check(t, e.Launch(s))
		compare(to, want)
	}
	check(t, e.Close())
	if err := m.Multiply(s, from, to); err == nil {
		t.Error("a closed matrix multiplies")
	}
}
