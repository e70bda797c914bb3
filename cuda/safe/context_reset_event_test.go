//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Queries of events beside a reset. Each test runs in its own process.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestResetBesideQueryOfClosedEvent: a reset waits for the query of a borrowed event that was closed and
// borrowed again meanwhile.
func TestResetBesideQueryOfClosedEvent(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		var raw driver.CUevent
		require.NoError(t, x.WithCurrent(func() error { return driver.CuEventCreate(&raw, 0) }))
		e, err := safe.BorrowEvent(raw, x, nil)
		require.NoError(t, err)
		simulated.Delay("cuEventQuery", 200*time.Millisecond)
		queried := inDriver(t, func() error { _, err := e.Query(); return err })
		require.NoError(t, e.Close())
		again, err := safe.BorrowEvent(raw, x, nil)
		require.NoError(t, err)
		resetPrimary(t, x)
		assert.Zero(t, simulated.Flying(), "the reset has not waited")
		assert.NoError(t, errors.Join(<-queried, again.Close()))
		simulated.Reset()
		noViolation(t)
		settle(t)
		simulated.Lost() // what went with the context
	})
}
