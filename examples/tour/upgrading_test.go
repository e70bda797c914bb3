//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hurry raises the priority of work enqueued from now on, which needs CUDA 12.0. The
// program works without it, too.
func hurry(s *safe.Stream) error {
	var v driver.CUstreamAttrValue
	*v.Priority() = -1
	err := s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, v)
	if errors.Is(err, safe.ErrNotSupported) {
		return nil
	}
	return err
}

// check returns an error that names every function that the program needs and the
// driver lacks.
func check() error {
	var all error
	for _, symbol := range []string{"cuStreamGetId", "cuStreamBeginCaptureToGraph"} {
		all = errors.Join(all, driver.Find(symbol))
	}
	return all
}

// device returns the device of a stream, by the newest function if the driver has it.
func device(x *safe.Context, s *safe.Stream) (d driver.CUdevice, err error) {
	err = x.WithCurrent(func() error {
		err := driver.CuStreamGetDevice(s.Raw(), &d) // from CUDA 12.8 on
		if errors.Is(err, errors.ErrUnsupported) {
			return driver.CuCtxGetDevice(&d)
		}
		return err
	})
	return d, err
}

func TestUpgrading(t *testing.T) {
	x := open(t)
	s := newStream(t, x)
	file, version, err := driver.Library()
	require.NoError(t, err)

	require.NoError(t, hurry(s))
	d, err := device(x, s)
	require.NoError(t, err)
	assert.Equal(t, x.Device().Raw(), d)

	err = driver.Find("cuStreamBeginRecaptureToGraph")
	switch version {
	case "11.8":
		assert.Zero(t, s.Priority())
		_, err := s.ID()
		assert.EqualError(t, err, "cuda: Stream.ID: "+file+" (CUDA 11.8) has no cuStreamGetId: it needs CUDA 12.0")
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		assert.ErrorIs(t, check(), errors.ErrUnsupported)
	case "13.0":
		assert.NoError(t, check())
		assert.EqualError(t, err, "cuda: "+file+" (CUDA 13.0) has no cuStreamBeginRecaptureToGraph: it needs CUDA 13.3")
		var symbol *driver.SymbolError
		require.ErrorAs(t, err, &symbol)
		assert.Equal(t, "13.3", symbol.Since)
		assert.Equal(t, "13.0", symbol.Version)
	}
}
