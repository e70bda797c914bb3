//go:build cgo && linux && (amd64 || arm64)

package library_test

import (
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prepared returns a call that sets a value by one call of the driver, and how often its functions were called.
func prepared(t *testing.T, o *library.Object, b *safe.Buffer[uint32]) (c *library.Call, did map[string]int) {
	did = map[string]int{}
	var raw [1]safe.RawCall
	set := safe.Symbol(driver.Library, "cuMemsetD32Async")()
	require.NotZero(t, set)
	c = &library.Call{
		Object: o, Memory: 100,
		Prepare: func(p library.Place) []safe.RawCall {
			did["Prepare"]++
			assert.Zero(t, p.Capture)
			assert.Equal(t, c.Memory > 0, p.Memory != 0)
			assert.GreaterOrEqual(t, p.Size, uint64(c.Memory))
			raw[0] = safe.RawCall{
				Address: set,
				Args:    [8]uint64{uint64(b.Raw()), 1, uint64(b.Len()), uint64(p.Stream)},
			}
			return raw[:]
		},
		Called: func(made bool) error {
			if !made {
				did["not made"]++
				return nil
			}
			did["made"]++
			if raw[0].Result != 0 {
				return driver.CUresult(raw[0].Result)
			}
			return nil
		},
		Do: func(p library.Place) error {
			did["Do"]++
			return driver.CuMemsetD32Async(b.Raw(), 2, uint64(b.Len()), p.Stream)
		},
	}
	return c, did
}

func submit(c *library.Call, s *safe.Stream, b *safe.Buffer[uint32]) error {
	c.Stream, c.Uses = s, append(c.Uses[:0], b.Arg())
	return c.Submit()
}

func value(t *testing.T, b *safe.Buffer[uint32]) uint32 {
	t.Helper()
	got := make([]uint32, b.Len())
	require.NoError(t, b.CopyToHost(got))
	return got[0]
}

// TestPrepare: a prepared call takes one call of C, once the stream has memory. In a capture it is Do's turn.
func TestPrepare(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	b := words(t, x)
	c, did := prepared(t, newObject(t, x, counted(new(counts))), b)
	require.NoError(t, submit(c, s, b))
	assert.Equal(t, uint32(1), value(t, b))
	fewest := int64(math.MaxInt64)
	for range 10 { // the package's own goroutines may call C meanwhile
		before := runtime.NumCgoCall()
		require.NoError(t, submit(c, s, b))
		fewest = min(fewest, runtime.NumCgoCall()-before)
	}
	assert.Equal(t, int64(1), fewest)
	assert.Equal(t, map[string]int{"Prepare": 11, "made": 11}, did)

	g, err := s.Capture(func() error { return submit(c, s, b) })
	require.NoError(t, errors.Join(err, g.Close()))
	assert.Equal(t, map[string]int{"Prepare": 11, "made": 11, "Do": 1}, did)
	c.Memory = 0
	require.NoError(t, x.WithCurrent(func() error {
		return driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_RELAXED)
	}))
	require.NoError(t, submit(c, s, b))
	var raw driver.CUgraph
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamEndCapture(s.Raw(), &raw) }))
	require.NoError(t, driver.CuGraphDestroy(raw))
	assert.Equal(t, map[string]int{"Prepare": 12, "made": 11, "not made": 1, "Do": 2}, did, "other code has begun the capture")
}

// TestPrepareFails: an error of the function is that of the call, whose object is not locked afterwards.
func TestPrepareFails(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	b := words(t, x)
	c, did := prepared(t, newObject(t, x, counted(new(counts))), b)
	require.NoError(t, submit(c, s, b))
	prepare := c.Prepare
	c.Prepare = func(p library.Place) []safe.RawCall {
		calls := prepare(p)
		calls[0].Args[0] = 1
		return calls
	}
	require.ErrorIs(t, submit(c, s, b), driver.CUDA_ERROR_INVALID_VALUE)
	assert.Equal(t, 2, did["made"])

	c.Prepare = func(library.Place) []safe.RawCall { panic("on purpose") }
	assert.Panics(t, func() { _ = submit(c, s, b) })
	c.Prepare = func(library.Place) []safe.RawCall { return nil }
	require.NoError(t, submit(c, s, b))
	c.Prepare = prepare
	require.NoError(t, submit(c, s, b))
	assert.Equal(t, map[string]int{"Prepare": 3, "made": 3, "Do": 1}, did)

	called := c.Called
	c.Called = nil
	require.ErrorIs(t, submit(c, s, b), safe.ErrInvalidArgument)
	c.Called = called

	require.NoError(t, c.Object.Close())
	require.ErrorIs(t, submit(c, s, b), safe.ErrClosed)
}

// TestPrepareInDo: a call within another one of the same object is refused before it waits for the object.
func TestPrepareInDo(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	b := words(t, x)
	o := newObject(t, x, counted(new(counts)))
	c, did := prepared(t, o, b)
	c.Memory = 0
	require.NoError(t, o.Enqueue(s, 0, func(library.Place) error {
		assert.ErrorIs(t, submit(c, other, b), safe.ErrInCallback)
		return nil
	}))
	assert.Empty(t, did)
}
