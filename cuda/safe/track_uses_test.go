//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Memory that launches use only by address, listed in LaunchConfig.Uses. Tests that look
// at live objects need the simulated driver; the others run on any.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func using(args ...safe.Arg) safe.LaunchConfig {
	cfg := one
	cfg.Uses = args
	return cfg
}

// TestUsesAreKept: memory that a launch uses stays allocated until the launch has
// completed, in graphs too.
func TestUsesAreKept(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	store, g, s, home := kernel(t, x, "store"), newGate(t, x), stream(t, x), stream(t, x)
	exec := func(graph *safe.Graph, err error) func() {
		require.NoError(t, err)
		e, err := graph.Instantiate()
		require.NoError(t, err)
		require.NoError(t, graph.Close())
		return func() {
			require.NoError(t, e.Launch(s))
			require.NoError(t, e.Close())
		}
	}
	for name, make := range map[string]func(b *safe.Buffer[uint64]) (launch func()){
		"launch": func(b *safe.Buffer[uint64]) func() {
			require.NoError(t, store.Launch(s, using(b.Arg()), safe.Val(uint64(b.Raw())), safe.Val(uint64(7))))
			return func() {}
		},
		"capture": func(b *safe.Buffer[uint64]) func() {
			return exec(s.Capture(func() error {
				return store.Launch(s, using(b.Arg()), safe.Val(uint64(b.Raw())), safe.Val(uint64(7)))
			}))
		},
		"node": func(b *safe.Buffer[uint64]) func() {
			graph, err := safe.NewGraph(x)
			require.NoError(t, err)
			cfg := using(b.Arg())
			w := safe.KernelNode(store, cfg, safe.Val(uint64(b.Raw())), safe.Val(uint64(7)))
			cfg.Uses[0] = safe.Arg{} // the node params have a copy
			_, err = graph.Add(w)
			return exec(graph, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := safe.NewBufferAsync[uint64](home, 1)
			require.NoError(t, err)
			require.NoError(t, home.Synchronize())
			g.flag.Data()[0] = 0
			g.shut(t, s)
			launch := make(b)
			require.NoError(t, b.Close())
			launch()
			time.Sleep(20 * time.Millisecond)
			assert.Equal(t, 1, simulated.Live("async"), "in use")
			g.open()
			require.NoError(t, s.Synchronize())
			assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
			assert.Empty(t, simulated.Violation())
		})
	}
}

// TestUsersAreFew: memory remembers each stream that uses it once, and forgets those that are closed.
func TestUsersAreFew(t *testing.T) {
	x := open(t, 0)
	b := buffer[byte](t, x, 4)
	for range 6 {
		s := stream(t, x)
		for range 3 {
			require.NoError(t, b.FillAsync(s, 0))
		}
	}
	require.Equal(t, 6, safe.Users(b))
	for range 5 {
		s := stream(t, x)
		require.NoError(t, errors.Join(b.FillAsync(s, 0), s.Synchronize(), s.Close()))
	}
	assert.Equal(t, 7, safe.Users(b))
}

// TestUsesAreWaitedFor: synchronous copies wait for launches that use the memory.
func TestUsesAreWaitedFor(t *testing.T) {
	x := open(t, 0)
	store, g, s, b := kernel(t, x, "store"), newGate(t, x), stream(t, x), buffer[uint64](t, x, 1)
	h := host[uint64](t, x, 1)
	g.shut(t, s)
	require.NoError(t, store.Launch(s, using(h.Arg(), b.Arg()), safe.Val(uint64(b.Raw())), safe.Val(uint64(7))))
	time.AfterFunc(20*time.Millisecond, g.open)
	got := make([]uint64, 1)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 7, got[0])
}

func TestUsesErrors(t *testing.T) {
	x := open(t, 0)
	s, b, k := stream(t, x), buffer[uint64](t, x, 1), kernel(t, x, "nothing")
	closed, err := safe.NewBuffer[uint64](x, 1)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	graph, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, graph)
	for name, test := range map[string]struct {
		uses []safe.Arg
		is   error
		says string
	}{
		"closed":    {[]safe.Arg{b.Arg(), closed.Arg()}, safe.ErrClosed, "LaunchConfig.Uses 1 of nothing"},
		"nil":       {[]safe.Arg{(*safe.Buffer[int32])(nil).Arg()}, safe.ErrClosed, "LaunchConfig.Uses 0 of nothing"},
		"no memory": {[]safe.Arg{b.Arg(), b.Arg(), safe.Val(uint64(b.Raw()))}, safe.ErrInvalidArgument, "LaunchConfig.Uses 2 of nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			err := k.Launch(s, using(test.uses...))
			assert.ErrorIs(t, err, test.is)
			assert.ErrorContains(t, err, test.says)
			_, err = graph.Add(safe.KernelNode(k, using(test.uses...)))
			assert.ErrorIs(t, err, test.is)
			assert.ErrorContains(t, err, test.says)
		})
	}
}

// TestRawOfClosed: a closed object has no address and no handle.
func TestRawOfClosed(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	e, err := safe.NewEvent(x)
	require.NoError(t, err)
	b, err := safe.NewBuffer[float32](x, 512)
	require.NoError(t, err)
	part, err := b.Slice(2, 4)
	require.NoError(t, err)
	rows, err := b.Pitched(safe.Extent{Width: 4, Height: 4}, 0)
	require.NoError(t, err)
	a, err := safe.NewArray[float32](x, safe.Extent{Width: 4}, safe.ArrayOptions{})
	require.NoError(t, err)
	texture, err := safe.NewTexture(a, safe.TextureOptions{})
	require.NoError(t, err)
	graph, err := safe.NewGraph(x)
	require.NoError(t, err)
	exec, err := graph.Instantiate()
	require.NoError(t, err)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	k, err := m.Kernel("nothing")
	require.NoError(t, err)
	raws := map[string]func() uint64{
		"context": func() uint64 { return uint64(x.Raw()) },
		"stream":  func() uint64 { return uint64(s.Raw()) },
		"event":   func() uint64 { return uint64(e.Raw()) },
		"buffer":  func() uint64 { return uint64(b.Raw()) },
		"slice":   func() uint64 { return uint64(part.Raw()) },
		"pitched": func() uint64 { return uint64(rows.Raw()) },
		"array":   func() uint64 { return uint64(a.Raw()) },
		"texture": func() uint64 { return uint64(texture.Raw()) },
		"graph":   func() uint64 { return uint64(graph.Raw()) },
		"exec":    func() uint64 { return uint64(exec.Raw()) },
		"kernel":  func() uint64 { return uint64(k.Raw()) },
	}
	for name, raw := range raws {
		assert.NotZero(t, raw(), name)
	}
	for _, c := range []closer{s, e, b, texture, a, exec, graph, m, x} {
		require.NoError(t, c.Close())
	}
	for name, raw := range raws {
		assert.Zero(t, raw(), name)
	}
}
