//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIdentifiedLast: a Join or Open that fails before the ranks connect makes no identifier, which NCCL
// would serve until the process ends.
func TestIdentifiedLast(t *testing.T) {
	needsDouble(t)
	x := open(t, 1)[0]
	own, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	defer own.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer s.Close()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer used.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	soonEnded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, f := range map[string]func() error{
		"the address is in use": func() error {
			_, err := Join(soon(t), x, Options{Size: 2, Address: used.Addr().String()})
			return err
		},
		"a rank never comes": func() error {
			_, err := Join(soonEnded, x, Options{Size: 2, Address: freeAddress(t)})
			return err
		},
		"the context has ended": func() error {
			_, err := Open(ended, x)
			return err
		},
		"a context that is not primary": func() error {
			_, err := Open(soon(t), own)
			return err
		},
		"one rank in such a context": func() error {
			_, err := Join(soon(t), own, Options{Size: 1})
			return err
		},
		"a capture": func() (err error) {
			g, captured := s.Capture(func() error {
				_, err = Open(soon(t), x)
				return nil
			})
			require.NoError(t, captured)
			require.NoError(t, g.Close())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := told.get(&told.Identified)
			assert.Error(t, f())
			assert.Equal(t, before, told.get(&told.Identified))
		})
	}
	before := told.get(&told.Identified)
	comms, err := Open(soon(t), x)
	require.NoError(t, err)
	require.NoError(t, comms.Shutdown(soon(t)))
	assert.Equal(t, before+1, told.get(&told.Identified))
}
