//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Events and kernels of a primary context that was reset, in calls of another context. Each test
// runs in its own process.

package safe_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOthersOfResetPeer is TestMemoryOfResetPeer for events and kernels.
func TestOthersOfResetPeer(t *testing.T) {
	needsSimulated(t)
	type ofPeer struct {
		s            *safe.Stream
		g            *safe.Graph
		green        *safe.GreenContext
		e            *safe.Event  // of the other
		k            *safe.Kernel // of the other
		waits, other *safe.GraphExec
		n            safe.Node
		kernels      *safe.Graph // that other is of
	}
	for name, call := range map[string]func(w *ofPeer) error{
		"WaitEvent":              func(w *ofPeer) error { return w.s.WaitEvent(w.e) },
		"GreenContext.WaitEvent": func(w *ofPeer) error { return w.green.WaitEvent(w.e) },
		"WaitEventNode":          func(w *ofPeer) error { _, err := w.g.Add(safe.WaitEventNode(w.e)); return err },
		"KernelNode":             func(w *ofPeer) error { _, err := w.g.Add(safe.KernelNode(w.k, one)); return err },
		"Set, event":             func(w *ofPeer) error { return w.waits.Set(w.n, safe.WaitEventNode(w.e)) },
		"Clone":                  func(w *ofPeer) error { _, err := w.kernels.Clone(); return err },
		"ChildGraphNode":         func(w *ofPeer) error { _, err := w.g.Add(safe.ChildGraphNode(w.kernels)); return err },
		"Instantiate":            func(w *ofPeer) error { _, err := w.kernels.Instantiate(); return err },
		"Update":                 func(w *ofPeer) error { return w.other.Update(w.kernels) },
		"Launch, event":          func(w *ofPeer) error { return w.waits.Launch(w.s) },
		"Launch, kernel":         func(w *ofPeer) error { return w.other.Launch(w.s) },
		"BatchWait": func(w *ofPeer) error {
			b, err := safe.NewBatch(w.s.Context())
			if err != nil {
				return err
			}
			return errors.Join(b.WaitEvent(w.e), b.Submit(w.s))
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, func(t *testing.T, x, y *safe.Context) {
				w := &ofPeer{s: stream(t, x), g: newGraph(t, x), green: green(t, x, splitInto(t, 1)...)}
				var err error
				w.e, err = safe.NewEvent(y, safe.EventOptions{})
				require.NoError(t, err)
				m, err := safe.LoadFile(y, "testdata/kernels.ptx", safe.LoadOptions{})
				require.NoError(t, err)
				w.k, err = m.Kernel("nothing")
				require.NoError(t, err)
				g := newGraph(t, x)
				w.n, err = g.Add(safe.WaitEventNode(w.e))
				require.NoError(t, err)
				w.waits = executable(t, g)
				g = newGraph(t, x)
				_, err = g.Add(safe.KernelNode(w.k, one))
				require.NoError(t, err)
				w.kernels, w.other = g, executable(t, g)
				require.NoError(t, errors.Join(w.waits.Launch(w.s), w.other.Launch(w.s), w.s.Synchronize()))
				resetPrimary(t, y)
				assert.ErrorIs(t, call(w), safe.ErrReset)
				assert.NoError(t, w.s.Synchronize())
				assert.NoError(t, errors.Join(w.e.Close(), m.Close()))
			})
		})
	}
}
