//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Peers. Runs on any driver.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEnablePeerAccessAgainFails tests that a failed call takes no access that an earlier one has
// given.
func TestEnablePeerAccessAgainFails(t *testing.T) {
	needsSimulated(t)
	x, y := open(t, 0), second(t)
	s, fill, b := stream(t, x), kernel(t, x, "fill"), buffer[float32](t, y, 4)
	require.NoError(t, x.EnablePeerAccess(y))
	simulated.Fail("cuCtxEnablePeerAccess", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
	assert.ErrorIs(t, x.EnablePeerAccess(y), driver.CUDA_ERROR_UNKNOWN)
	simulated.Reset()
	require.NoError(t, fill.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg()))
	require.NoError(t, s.Synchronize())
	require.NoError(t, x.DisablePeerAccess(y))
}
