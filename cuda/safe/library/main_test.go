//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Test setup: the driver, shared helpers.

package library_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/require"
)

// The tests run on the simulated driver, or with CUDABIND_REQUIRE_GPU=1 on the machine's driver. The
// library is a test's own functions.
var (
	onGPU     = os.Getenv("CUDABIND_REQUIRE_GPU") != ""
	simulated sim.Control
)

func TestMain(m *testing.M) { os.Exit(sim.Main(closing{m})) }

// closing fails if the tests leave anything on the simulated driver.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := drivertest.Run(c.M)
	if onGPU {
		return code
	}
	if err := drivertest.LeftOver(simulated); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func open(t testing.TB) *safe.Context {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func stream(t testing.TB, x *safe.Context) *safe.Stream {
	t.Helper()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// words is a buffer of 4 words.
func words(t testing.TB, x *safe.Context) *safe.Buffer[uint32] {
	t.Helper()
	b, err := safe.NewBuffer[uint32](x, 4)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
