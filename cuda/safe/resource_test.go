//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Objects of other libraries that work uses. Runs on any driver.

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

// resource makes a Resource and a channel that is closed by its release.
func resource(t *testing.T, x *safe.Context) (*safe.Resource, chan struct{}) {
	t.Helper()
	gone := make(chan struct{})
	r, err := safe.NewResource(x, func() { close(gone) })
	require.NoError(t, err)
	return r, gone
}

// holding makes a Resource whose release keeps the reaper busy until goOn is closed.
func holding(t *testing.T, x *safe.Context) (r *safe.Resource, busy, goOn chan struct{}) {
	t.Helper()
	busy, goOn = make(chan struct{}), make(chan struct{})
	r, err := safe.NewResource(x, func() { close(busy); <-goOn })
	require.NoError(t, err)
	return r, busy, goOn
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func released(t *testing.T, gone chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("the resource was not released")
	}
}

func nothing(driver.CUstream) error { return nil }

func TestResourceAfterWork(t *testing.T) {
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	r, gone := resource(t, x)
	assert.Equal(t, x.Raw(), r.Context().Raw())
	g.shut(t, s)
	require.NoError(t, s.EnqueueRaw(nothing, r.Arg()))
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	assert.ErrorIs(t, s.EnqueueRaw(nothing, r.Arg()), safe.ErrClosed)
	drop()
	assert.False(t, closed(gone), "the work still uses it")
	g.open()
	released(t, gone)
}

func TestResourceDropped(t *testing.T) {
	_, gone := resource(t, open(t, 0))
	assert.Eventually(t, func() bool { drop(); return closed(gone) }, time.Minute, time.Millisecond)
}

// TestResourcePanics tests that a panic of a release is reported, and ends nothing.
func TestResourcePanics(t *testing.T) {
	x := open(t, 0)
	reported := make(chan error, 1)
	safe.OnError(func(err error) {
		if !errors.As(err, new(*safe.PanicError)) {
			return // of an earlier test
		}
		select {
		case reported <- err:
		default:
		}
	})
	t.Cleanup(func() { safe.OnError(nil) })
	r, err := safe.NewResource(x, func() { panic("no") })
	require.NoError(t, err)
	require.NoError(t, r.Close())
	var panicked *safe.PanicError
	select {
	case err := <-reported:
		require.ErrorAs(t, err, &panicked)
		assert.Equal(t, "no", panicked.Value)
	case <-time.After(time.Minute):
		t.Fatal("the panic was not reported")
	}
}

func TestResourceBad(t *testing.T) {
	x, s := open(t, 0), stream(t, open(t, 0))
	_, err := safe.NewResource(x, nil)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	for _, r := range []*safe.Resource{nil, {}} {
		assert.NoError(t, r.Close())
		r.Revoke()
		assert.Nil(t, r.Context())
		assert.ErrorIs(t, s.EnqueueRaw(nothing, r.Arg()), safe.ErrClosed)
	}
}

// usesInGraph captures work that uses r.
func usesInGraph(t *testing.T, s *safe.Stream, r *safe.Resource) *safe.Graph {
	t.Helper()
	h := host[byte](t, s.Context(), 16)
	g, err := s.Capture(func() error {
		return errors.Join(h.FillAsync(s, 0), s.EnqueueRaw(nothing, r.Arg()))
	})
	require.NoError(t, err)
	closing(t, g)
	return g
}

func TestResourceOfGraph(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	r, gone := resource(t, x)
	g := usesInGraph(t, s, r)
	e := executable(t, g)
	require.NoError(t, r.Close())
	require.NoError(t, e.Launch(s), "the graph retains it")
	require.NoError(t, g.Close())
	require.NoError(t, s.Synchronize())
	drop()
	assert.False(t, closed(gone), "the executable retains it")
	require.NoError(t, e.Close())
	released(t, gone)
}

func TestRevoke(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	r, gone := resource(t, x)
	other, _ := resource(t, x)
	defer other.Close()
	g, without := usesInGraph(t, s, r), usesInGraph(t, s, other)
	e, early, free := executable(t, g), executable(t, g), executable(t, without)
	outer, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, outer)
	part, err := addNode(t, outer, safe.ChildGraphNode(g)).ChildGraph()
	require.NoError(t, err)
	clone, err := part.Clone()
	require.NoError(t, err)
	closing(t, clone)
	around := executable(t, outer)
	nodes := newGraph(t, x)
	_, err = nodes.Add(safe.KernelNode(kernel(t, x, "nothing"), using(r.Arg())))
	require.NoError(t, err)
	require.NoError(t, errors.Join(e.Launch(s), around.Launch(s), s.Synchronize()))

	r.Revoke()
	r.Revoke()
	for name, e := range map[string]*safe.GraphExec{
		"launched before": e, "never launched": early, "made later": executable(t, g), "with a child graph": around, "of a child graph": executable(t, clone),
		"with a node": executable(t, nodes),
	} {
		assert.ErrorIs(t, e.Launch(s), safe.ErrClosed, name)
		b, err := safe.NewBatch(x)
		require.NoError(t, err)
		require.NoError(t, b.LaunchGraph(e))
		assert.ErrorIs(t, b.Submit(s), safe.ErrClosed, name)
	}
	assert.ErrorIs(t, s.EnqueueRaw(nothing, r.Arg()), safe.ErrClosed)
	assert.NoError(t, free.Launch(s), "others are as before")
	require.NoError(t, e.Update(without))
	assert.NoError(t, e.Launch(s), "it retains the resource no more")
	require.NoError(t, s.Synchronize())

	require.NoError(t, errors.Join(e.Close(), early.Close(), around.Close(), outer.Close(), g.Close(), nodes.Close()))
	assert.False(t, closed(gone), "an executable retains it")
}

// TestRevokeTwiceAtOnce tests that each of two concurrent calls prevents launches once it has
// returned.
func TestRevokeTwiceAtOnce(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	r, _ := resource(t, x)
	e := executable(t, usesInGraph(t, s, r))
	require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
	safe.RevokeInFlight(r)
	r.Revoke()
	assert.ErrorIs(t, e.Launch(s), safe.ErrClosed)
}

// TestRevokeAfterCaptureTo tests that executables and clones from before a capture into their
// graph do not retain what it uses.
func TestRevokeAfterCaptureTo(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	other, _ := resource(t, x)
	defer other.Close()
	g := usesInGraph(t, s, other)
	before := executable(t, g)
	clone, err := g.Clone()
	require.NoError(t, err)
	closing(t, clone)
	r, gone := resource(t, x)
	err = s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return s.EnqueueRaw(nothing, r.Arg()) })
	if errors.Is(err, safe.ErrNotSupported) { // drivers before CUDA 12.3
		t.Skip(err)
	}
	require.NoError(t, err)
	after, late := executable(t, g), executable(t, clone)

	r.Revoke()
	assert.NoError(t, before.Launch(s), "instantiated before")
	assert.NoError(t, late.Launch(s), "of a clone")
	assert.ErrorIs(t, after.Launch(s), safe.ErrClosed)
	other.Revoke()
	for name, e := range map[string]*safe.GraphExec{"before": before, "clone": late, "after": after} {
		assert.ErrorIs(t, e.Launch(s), safe.ErrClosed, name)
	}
	require.NoError(t, errors.Join(g.Close(), s.Synchronize()))
	assert.False(t, closed(gone), "an executable retains it")
	require.NoError(t, after.Close())
	released(t, gone)
}

// TestRevokeBesideInstantiate tests that Revoke waits for no longer than it promises.
func TestRevokeBesideInstantiate(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGraphInstantiateWithParams")
	startClean(t)
	x := open(t, 0)
	g := newGraph(t, x)
	over := instantiating(t, g)
	r, err := safe.NewResource(x, func() {})
	require.NoError(t, err)
	r.Revoke()
	assert.Empty(t, over, "it waited for the instantiation")
	simulated.Reset()
	require.NoError(t, <-over)
}
