//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Profilers are started and stopped, with none attached. The tests run on the simulated
// driver and on a GPU.

package safe_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	operations = append(operations,
		operation{"Context.StartProfiler", func(w *world) error { return w.x.StartProfiler() }},
		operation{"Context.StopProfiler", func(w *world) error { return w.x.StopProfiler() }},
	)
}

// TestProfiler: both calls reach the driver, also twice and while a stream captures.
func TestProfiler(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	calls := func() (n int) {
		if !onGPU {
			n = simulated.Calls("cuProfilerStart") + 10*simulated.Calls("cuProfilerStop")
		}
		return n
	}
	before := calls()
	require.NoError(t, x.StopProfiler())
	g, err := s.Capture(func() error {
		require.NoError(t, x.StartProfiler())
		require.NoError(t, x.StartProfiler())
		return x.StopProfiler()
	})
	require.NoError(t, err)
	closing(t, g)
	if !onGPU {
		assert.Equal(t, before+22, calls())
	}
	assert.Zero(t, current(t))
	var none *safe.Context
	assert.ErrorIs(t, none.StartProfiler(), safe.ErrClosed)
	assert.ErrorIs(t, none.StopProfiler(), safe.ErrClosed)
}

// nsys profile -c cudaProfilerApi records only the work between the two calls.
func ExampleContext_StartProfiler() {
	fmt.Println(profiled())
	// Output: <nil>
}

func profiled() error {
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer x.Close()
	b, err := safe.NewBuffer[float32](x, 1024)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := errors.Join(b.Zero(), x.Synchronize()); err != nil { // to warm up
		return err
	}
	if err := x.StartProfiler(); err != nil {
		return err
	}
	return errors.Join(b.Fill(1), x.Synchronize(), x.StopProfiler())
}
