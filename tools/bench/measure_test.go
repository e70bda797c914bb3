package main

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   float64
	}{
		{"one", []float64{3}, 3},
		{"odd", []float64{9, 1, 5}, 5},
		{"even", []float64{9, 1, 5, 3}, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := fmt.Sprint(tt.values)
			assert.InDelta(t, tt.want, median(tt.values), 0)
			assert.Equal(t, before, fmt.Sprint(tt.values), "the rounds stay in order")
		})
	}
}

// counted is an operation that takes so long, and tells how often it was done.
type counted struct {
	each   time.Duration
	first  time.Duration // that the first operation takes besides
	n      int
	most   int // at once
	inside *bool
	within []bool // whether the context was current, for each stretch
}

func (c *counted) op(n int) error {
	if c.n == 0 {
		time.Sleep(c.first)
	}
	time.Sleep(time.Duration(n) * c.each)
	c.n += n
	c.most = max(c.most, n)
	c.within = append(c.within, *c.inside)
	return nil
}

// The clock of a bubble stands still but for sleeps, so that measured
// times are exact.
func TestMeasure(t *testing.T) {
	tests := []struct {
		name  string
		batch int
		inDo  bool
	}{
		{"as many as fit", 0, false},
		{"in batches", 200, false},
		{"with the context current", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inside, prepared := false, 0
				m := meter{rounds: 3, round: 10 * time.Millisecond, current: func(f func() error) error {
					inside = true
					defer func() { inside = false }()
					return f()
				}}
				c, raw, safe := &counted{each: 100, first: time.Minute, inside: &inside}, &counted{each: 150, inside: &inside}, &counted{each: 200, inside: &inside}
				result, err := m.measure(&row{
					name: "some", c: c.op, raw: raw.op, safe: safe.op, batch: tt.batch, inDo: tt.inDo,
					prepare: func() error {
						assert.False(t, inside)
						time.Sleep(time.Second) // is not measured
						prepared++
						return nil
					},
				})
				require.NoError(t, err)
				assert.Equal(t, &figures{Median: 100, Min: 100, Operations: 100_000}, result.C)
				assert.InDelta(t, 150, result.Raw.Median, 0)
				assert.InDelta(t, 200, result.Safe.Median, 0)
				assert.Equal(t, 50_000, result.Safe.Operations)
				assert.GreaterOrEqual(t, c.n, 3*100_000)
				assert.Equal(t, len(c.within)+len(raw.within)+len(safe.within), prepared, "before each stretch")
				if tt.batch > 0 {
					assert.Equal(t, tt.batch, c.most)
					assert.Equal(t, tt.batch, safe.most)
				}
				assert.NotContains(t, c.within, false)
				assert.NotContains(t, raw.within, false)
				assert.NotContains(t, safe.within, !tt.inDo)
			})
		})
	}
}

func TestMeasureCountsAllocations(t *testing.T) {
	var kept *int
	m := meter{rounds: 1, round: time.Microsecond, current: alone}
	result, err := m.measure(&row{
		raw:  times(func() error { return nil }),
		safe: times(func() error { kept = new(int); return nil }),
	})
	require.NoError(t, err)
	assert.NotNil(t, kept)
	assert.Nil(t, result.C)
	assert.Zero(t, result.Raw.Allocs)
	assert.GreaterOrEqual(t, result.Safe.Allocs, 1.0)
}

func TestMeasureFails(t *testing.T) {
	broken := errors.New("broken")
	fail := func(err error) op { return func(int) error { return err } }
	fine := fail(nil)
	tests := []struct {
		name string
		row  row
		want error
	}{
		{"C", row{c: fail(broken), safe: fine}, broken},
		{"safe", row{c: fine, safe: fail(broken)}, broken},
		{"the preparation", row{c: fine, prepare: func() error { return broken }}, broken},
		{"not supported", row{c: fail(driver.CUDA_ERROR_NOT_SUPPORTED)}, driver.CUDA_ERROR_NOT_SUPPORTED},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := meter{rounds: 1, round: time.Nanosecond, current: alone}
			result, err := m.measure(&tt.row)
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, err.Error(), result.Error)
			assert.Equal(t, tt.want != broken, result.unsupported)
		})
	}
}

func TestTimesEndsAtAnError(t *testing.T) {
	n, broken := 0, errors.New("broken")
	err := times(func() error {
		n++
		if n == 3 {
			return broken
		}
		return nil
	})(10)
	require.ErrorIs(t, err, broken)
	assert.Equal(t, 3, n)
}

func TestTwo(t *testing.T) {
	broken := errors.New("broken")
	arrived := make(chan int, 2)
	both := make(chan struct{})
	go func() {
		<-arrived
		<-arrived
		close(both) // each has waited for the other
	}()
	err := two(func(n int) error {
		arrived <- n
		<-both
		return broken
	})(7)
	require.ErrorIs(t, err, broken)
}
