//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Modules that are closed while their kernels are launched or run.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestModuleClosedInUse tests that a closed module is unloaded after its running kernels, and
// once no graph has nodes of them.
func TestModuleClosedInUse(t *testing.T) {
	x := open(t, 0)
	g := newGate(t, x)
	s, b := stream(t, x), buffer[uint64](t, x, 1)
	load := func() (*safe.Module, *safe.Kernel) {
		m, err := safe.Load(x, []byte(storePTX))
		require.NoError(t, err)
		k, err := m.Kernel("store")
		require.NoError(t, err)
		return m, k
	}
	value := func() uint64 {
		got := make([]uint64, 1)
		require.NoError(t, b.CopyToHost(got))
		return got[0]
	}
	m, k := load()
	require.NoError(t, k.Launch(s, one, b.Arg(), safe.Val(uint64(1))))
	require.NoError(t, s.Synchronize())
	captured, ck := load()
	g.shut(t, s)
	require.NoError(t, k.Launch(s, one, b.Arg(), safe.Val(uint64(2))))
	closed := make(chan error)
	go func() { closed <- m.Close() }()
	time.Sleep(20 * time.Millisecond)
	g.open()
	require.NoError(t, <-closed)
	assert.EqualValues(t, 2, value())

	graph, err := s.Capture(func() error { return ck.Launch(s, one, b.Arg(), safe.Val(uint64(3))) })
	require.NoError(t, err)
	require.NoError(t, captured.Close())
	assert.ErrorIs(t, ck.Launch(s, one, b.Arg(), safe.Val(uint64(4))), safe.ErrClosed)
	exec, err := graph.Instantiate()
	require.NoError(t, err)
	require.NoError(t, graph.Close())
	g.flag.Data()[0] = 0
	g.shut(t, s)
	require.NoError(t, exec.Launch(s))
	require.NoError(t, exec.Close())
	drop()
	g.open()
	assert.EqualValues(t, 3, value())
}

// TestModuleClosedBesideLaunch: a launch keeps its module loaded until the driver has returned,
// though it does not acquire the module.
func TestModuleClosedBesideLaunch(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	for _, c := range []struct {
		name string
		busy func(t *testing.T, k *safe.Kernel) (finish func() error)
		used bool // the launch is in flight when Close returns
	}{
		{"in the driver", func(t *testing.T, k *safe.Kernel) func() error {
			for _, f := range []string{"cuLaunchKernel", "cuLaunchKernelEx"} {
				simulated.Delay(f, hang)
			}
			done := inDriver(t, func() error { return k.Launch(s, one) })
			return func() error {
				simulated.Reset() // ends the delay
				return <-done
			}
		}, true},
		{"waiting for room", func(t *testing.T, k *safe.Kernel) func() error {
			unstick := stick(t, x, s)
			filler := kernel(t, x, "nothing")
			for safe.Pending(s) < 960 {
				require.NoError(t, filler.Launch(s, one))
			}
			done := make(chan error, 1)
			go func() { done <- k.Launch(s, one) }()
			require.Eventually(t, func() bool { return safe.Reserved(s) > 0 }, hang, time.Millisecond)
			return func() error { unstick(); return <-done }
		}, true},
		{"another call has a stream locked", func(t *testing.T, k *safe.Kernel) func() error {
			release, done := make(chan struct{}), make(chan error, 1)
			go func() {
				done <- other.EnqueueRaw(func(driver.CUstream) error { <-release; return nil })
			}()
			enqueuing(t, other)
			return func() error { close(release); return <-done }
		}, true},
		{"no call", func(*testing.T, *safe.Kernel) func() error { return func() error { return nil } }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer simulated.Reset()
			before := simulated.Live("module")
			m, err := safe.LoadFile(x, "testdata/kernels.ptx")
			require.NoError(t, err)
			k, err := m.Kernel("nothing")
			require.NoError(t, err)
			loaded := simulated.Live("module")
			require.Greater(t, loaded, before)
			finish := c.busy(t, k)
			with := simulated.Live("module")
			require.NoError(t, m.Close())
			if c.used {
				assert.Equal(t, with, simulated.Live("module"))
			}
			assert.ErrorIs(t, k.Launch(other, one), safe.ErrClosed)
			require.NoError(t, errors.Join(finish(), s.Synchronize()))
			assert.Eventually(t, func() bool { return simulated.Live("module") == with-(loaded-before) }, atOnce, time.Millisecond)
			noViolation(t)
		})
	}
}

// TestGlobalClosedBesideCopy: a module stays loaded while work on a stream of another device uses a
// variable of it, also if both are closed.
func TestGlobalClosedBesideCopy(t *testing.T) {
	needsSimulated(t)
	for name, delayed := range map[string]bool{"pending": false, "in the driver": true} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, func(t *testing.T, x, y *safe.Context) {
				s := stream(t, x)
				unloaded := simulated.Live("module")
				m, err := safe.LoadFile(y, "testdata/kernels.ptx")
				require.NoError(t, err)
				table, err := safe.Global[float32](m, "table")
				require.NoError(t, err)
				b := buffer[float32](t, x, table.Len())
				unstick := stick(t, x, s)
				loaded := simulated.Live("module")
				copied := copyAcross(t, delayed, func() error { return b.CopyFromAsync(s, table) })
				require.NoError(t, errors.Join(table.Close(), m.Close()))
				require.NoError(t, <-copied)
				assert.Equal(t, loaded, simulated.Live("module"))
				unstick()
				assert.NoError(t, s.Synchronize())
				assert.Eventually(t, func() bool { return simulated.Live("module") < loaded }, atOnce, time.Millisecond)
				assert.Less(t, unloaded, loaded)
				simulated.Reset()
			})
		})
	}
}

// TestModuleClosedAfterReset: a reset by other code leaves libraries loaded, so Close unloads that of a module.
func TestModuleClosedAfterReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuLibraryLoadData")
	resetting(t, func(t *testing.T, x *safe.Context) {
		m, err := safe.LoadFile(x, "testdata/kernels.ptx")
		require.NoError(t, err)
		reset(t, x)
		require.NotZero(t, simulated.Live("module"), "CUDA keeps the library")
		_, err = m.Kernel("nothing")
		assert.ErrorIs(t, err, safe.ErrReset)
		require.NoError(t, m.Close())
		assert.Eventually(t, func() bool { return simulated.Live("module") == 0 }, atOnce, time.Millisecond)
	})
}
