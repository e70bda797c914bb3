//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCloseBesideReset: handles that are closed while a reset waits are destroyed if CUDA then refuses
// the reset, and only then.
func TestCloseBesideReset(t *testing.T) {
	needsDouble(t)
	for name, c := range map[string]struct {
		refused   bool
		destroyed int
	}{"done": {}, "refused": {true, 3}} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				x := open(t)
				h, err := blas.Open(x, blas.Options{Workspace: 4096})
				require.NoError(t, err)
				s := stream(t, x)
				begun, finish, called, reset := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
				go func() {
					defer close(called)
					assert.NoError(t, x.WithoutCaptures(func() error { close(begun); <-finish; return nil }))
				}()
				<-begun
				var want error
				if c.refused {
					want = driver.CUDA_ERROR_NOT_PERMITTED
					simulated.Fail("cuDevicePrimaryCtxReset_v2", 1, uint32(driver.CUDA_ERROR_NOT_PERMITTED))
				}
				go func() {
					defer close(reset)
					assert.ErrorIs(t, x.Device().ResetPrimary(), want)
				}()
				for err == nil {
					_, err = s.Query()
				}
				require.ErrorIs(t, err, safe.ErrReset)
				require.NoError(t, h.Close())
				close(finish)
				<-called
				<-reset
				simulated.Reset()
				require.NoError(t, errors.Join(s.Close(), x.Close()))
				require.Eventually(t, func() bool { return simulated.Live("") == 0 }, time.Minute, time.Millisecond)
				assert.Equal(t, c.destroyed, destroyed(lines(t)))
				assert.Empty(t, simulated.Violation())
			})
		})
	}
}
