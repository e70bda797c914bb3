//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Batches: what they do, and the errors. Runs on any driver.

package safe_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	within["Batch.Submit"] = []string{"NewEvent", "NewGraph"}
	operations = append(operations, operation{"Batch.Submit", func(w *world) error {
		b, err := everyKind(w.x, w.k, w.a, w.h, w.e, w.exec, func() {})
		if err != nil {
			return err
		}
		return errors.Join(b.Submit(w.s), b.Submit(w.t))
	}})
}

func newBatch(t testing.TB, x *safe.Context) *safe.Batch {
	t.Helper()
	b, err := safe.NewBatch(x)
	require.NoError(t, err)
	return b
}

// everyKind returns a batch with an operation of each kind. k is the kernel store.
func everyKind(x *safe.Context, k *safe.Kernel, m *safe.Buffer[int32], h *safe.Pinned[int32], e *safe.Event, exec *safe.GraphExec, f func()) (*safe.Batch, error) {
	b, err := safe.NewBatch(x)
	if err != nil {
		return nil, err
	}
	return b, errors.Join(
		safe.BatchCopy(b, m, h),
		b.Launch(k, one, m.Arg(), safe.Val(uint64(1))),
		b.Record(e),
		b.WaitEvent(e),
		safe.BatchFill(b, m, 3),
		safe.BatchFill(b, h, 0),
		b.LaunchGraph(exec),
		b.LaunchHostFunc(f),
		safe.BatchCopy(b, h, m),
	)
}

// TestBatch submits every kind of operation, several times and on two streams.
func TestBatch(t *testing.T) {
	const n = 100
	x := open(t, 0)
	s, other, fill, saxpy := stream(t, x), stream(t, x), kernel(t, x, "fill"), kernel(t, x, "saxpy")
	a, c, h, back := buffer[float32](t, x, n), buffer[float32](t, x, n), host[float32](t, x, n), host[float32](t, x, n)
	e := event(t, x)
	g, err := s.Capture(func() error {
		return saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(2)), a.Arg(), c.Arg())
	})
	require.NoError(t, err)
	closing(t, g)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	copy(h.Data(), count(n))
	var calls atomic.Int32

	b := newBatch(t, x)
	require.NoError(t, errors.Join(
		safe.BatchCopy(b, a, h), // a = i
		safe.BatchCopy(b, c, a), // c = i
		b.Launch(saxpy, perValue(n), safe.Val(uint32(n)), safe.Val(float32(3)), a.Arg(), c.Arg()), // c = 4i
		b.Record(e),
		b.WaitEvent(e),
		b.LaunchGraph(exec), // c = 6i
		b.LaunchGraph(exec), // c = 8i
		b.LaunchHostFunc(func() { calls.Add(1) }),
		safe.BatchFill(b, back, 0),
		safe.BatchCopy(b, back, c),
		safe.BatchFill(b, a, 1),
		b.Launch(fill, perValue(n), safe.Val(uint32(n)), safe.Val(float32(5)), c.Arg()),
	))
	assert.Equal(t, 12, b.Len())
	for i, on := range []*safe.Stream{s, other, s} {
		clear(back.Data())
		require.NoError(t, b.Submit(on))
		require.NoError(t, on.Synchronize())
		for k, v := range back.Data() {
			require.EqualValues(t, 8*k, v, "submission %d", i)
		}
		assert.EqualValues(t, i+1, calls.Load())
		got := make([]float32, n)
		require.NoError(t, c.CopyToHost(got))
		assert.EqualValues(t, 5, got[n-1])
	}

	require.NoError(t, b.SetLaunch(2, fill, perValue(n), safe.Val(uint32(n)), safe.Val(float32(7)), c.Arg()), "fewer arguments")
	require.NoError(t, b.SetLaunch(11, saxpy, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), a.Arg(), c.Arg()), "more")
	require.NoError(t, safe.SetBatchFill(b, 10, a, 9))
	require.NoError(t, safe.SetBatchCopy(b, 9, back, a), "another buffer")
	require.NoError(t, b.Submit(s))
	require.NoError(t, s.Synchronize())
	got := make([]float32, n)
	require.NoError(t, c.CopyToHost(got))
	for k := range got {
		require.EqualValues(t, k, back.Data()[k], "a copy of a")
		require.EqualValues(t, 7+4*k+9, got[k], "7, two launches of the graph, and a 9")
	}

	b.Reset()
	assert.Zero(t, b.Len())
	require.NoError(t, b.Submit(s), "an empty batch does nothing")
	require.NoError(t, safe.BatchFill(b, c, 2))
	require.NoError(t, b.Submit(s))
	require.NoError(t, c.CopyToHost(got), "it waits for the batch")
	assert.EqualValues(t, 2, got[3])
}

// TestBatchArguments passes arguments of all sizes, and launch attributes.
func TestBatchArguments(t *testing.T) {
	x := open(t, 0)
	s, point, many, sixteen := stream(t, x), kernel(t, x, "point"), kernel(t, x, "many"), kernel(t, x, "pair")
	out := buffer[uint64](t, x, 16)
	want, got := make([]uint64, 16), make([]uint64, 16)
	p := struct{ A, B, C uint64 }{1, 2, 3}
	q := struct{ A, B uint64 }{4, 5}
	attributed := one
	attributed.Cooperative = true
	for _, c := range []struct {
		name string
		k    *safe.Kernel
		cfg  safe.LaunchConfig
		args []safe.Arg
	}{
		{"24 bytes", point, one, []safe.Arg{safe.Ref(&p), out.Arg()}},
		{"16 bytes", sixteen, one, []safe.Arg{safe.Val(q), out.Arg()}},
		{"16 bytes and attributes", sixteen, attributed, []safe.Arg{safe.Val(q), out.Arg()}},
		{"seven", many, one, []safe.Arg{safe.Val(uint8(1)), safe.Val(int16(-2)), safe.Val(uint32(3)), safe.Val(int64(-4)), safe.Val(float32(5)), safe.Val(float64(6)), out.Arg()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, out.FillAsync(s, 0))
			require.NoError(t, c.k.Launch(s, c.cfg, c.args...))
			require.NoError(t, out.CopyToHost(want))
			b := newBatch(t, x)
			require.NoError(t, b.Launch(c.k, c.cfg, c.args...))
			before := p
			p.A = 77 // the batch has the value of before
			require.NoError(t, out.FillAsync(s, 0))
			require.NoError(t, b.Submit(s))
			require.NoError(t, out.CopyToHost(got))
			p = before
			assert.Equal(t, want, got)
			assert.NotEqual(t, make([]uint64, 16), got)
		})
	}
}

// TestBatchRefused tests the errors of recording and of submissions.
func TestBatchRefused(t *testing.T) {
	x := open(t, 0)
	s, k, m, h, e := stream(t, x), kernel(t, x, "store"), buffer[int32](t, x, 8), host[int32](t, x, 8), event(t, x)
	gone := buffer[int32](t, x, 8)
	require.NoError(t, gone.Close())
	b := newBatch(t, x)
	require.NoError(t, errors.Join(b.Launch(k, one, m.Arg(), safe.Val(uint64(1))), safe.BatchCopy(b, m, h), safe.BatchFill(b, m, 1)))
	half, err := m.Slice(0, 4)
	require.NoError(t, err)
	mod, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	old, err := mod.Kernel("nothing")
	require.NoError(t, errors.Join(err, mod.Close()))
	for _, c := range []struct {
		name string
		err  error
		want error
		says string
	}{
		{"a Go pointer", b.Launch(k, one, safe.Val(new(int)), safe.Val(uint64(1))), safe.ErrInvalidArgument, "Batch.Launch"},
		{"closed argument", b.Launch(k, one, gone.Arg(), safe.Val(uint64(1))), safe.ErrClosed, "argument 0 of store"},
		{"a value in Uses", b.Launch(k, safe.LaunchConfig{Uses: []safe.Arg{safe.Val(1)}}, m.Arg(), safe.Val(uint64(1))), safe.ErrInvalidArgument, "Uses 0"},
		{"nil kernel", b.Launch(nil, one), safe.ErrClosed, "Batch.Launch"},
		{"closed kernel", b.Launch(old, one), safe.ErrClosed, "Batch.Launch"},
		{"no such operation", b.SetLaunch(3, k, one, m.Arg(), safe.Val(uint64(1))), safe.ErrRange, "operation 3 of a batch of 3"},
		{"negative", b.SetLaunch(-1, k, one, m.Arg(), safe.Val(uint64(1))), safe.ErrRange, "operation -1"},
		{"another negative", b.SetLaunch(-2, k, one, m.Arg(), safe.Val(uint64(1))), safe.ErrRange, "operation -1"},
		{"another kind", safe.SetBatchFill(b, 1, m, 3), safe.ErrInvalidArgument, "operation 1 is a copy"},
		{"too long", safe.BatchCopy[int32](b, half, h), safe.ErrRange, "8 values do not fit into 4"},
		{"overlap", safe.BatchCopy(b, m, half), safe.ErrOverlap, "BatchCopy"},
		{"closed memory", safe.BatchCopy(b, gone, h), safe.ErrClosed, "BatchCopy"},
		{"nil memory", safe.BatchCopy[int32](b, nil, h), safe.ErrClosed, "BatchCopy"},
		{"nil event", b.Record(nil), safe.ErrClosed, "Batch.Record"},
		{"nil executable", b.LaunchGraph(nil), safe.ErrClosed, "Batch.LaunchGraph"},
		{"nil function", b.LaunchHostFunc(nil), safe.ErrInvalidArgument, "nil"},
		{"nil batch", (*safe.Batch)(nil).Submit(s), safe.ErrClosed, "Batch.Submit"},
		{"zero batch", new(safe.Batch).Record(e), safe.ErrClosed, "Batch.Record"},
		{"nil stream", b.Submit(nil), safe.ErrClosed, "Batch.Submit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.ErrorIs(t, c.err, c.want)
			assert.ErrorContains(t, c.err, c.says)
		})
	}
	require.Equal(t, 3, b.Len(), "an error records nothing")
	require.NoError(t, b.Submit(s))
	require.NoError(t, m.Close())
	err = b.Submit(s)
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.ErrorContains(t, err, "Batch.Submit: "+safe.ErrClosed.Error()+": operation 0, a launch")
	require.NoError(t, s.Synchronize())
}

// TestBatchOfTwoDevices tests which objects of another context a batch can use.
func TestBatchOfTwoDevices(t *testing.T) {
	x, y := open(t, 0), second(t)
	s, m, far, h := stream(t, x), buffer[int32](t, x, 8), buffer[int32](t, y, 8), host[int32](t, y, 8)
	b := newBatch(t, x)
	assert.ErrorIs(t, b.Launch(kernel(t, y, "nothing"), one), safe.ErrContextMismatch)
	assert.ErrorIs(t, b.Record(event(t, y)), safe.ErrContextMismatch)
	assert.ErrorIs(t, safe.BatchFill(b, far, 1), safe.ErrContextMismatch)
	assert.ErrorIs(t, safe.BatchCopy(b, far, h), safe.ErrContextMismatch)
	assert.ErrorIs(t, safe.BatchCopy(b, far, buffer[int32](t, y, 8)), safe.ErrContextMismatch)
	require.Zero(t, b.Len())
	e, o := event(t, y), stream(t, y)
	require.NoError(t, far.FillAsync(o, 6))
	require.NoError(t, o.Record(e))
	require.NoError(t, errors.Join(b.WaitEvent(e), safe.BatchCopy(b, m, far), safe.BatchCopy(b, h, m)))
	require.NoError(t, b.Submit(s))
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 6, h.Data()[7])
	assert.ErrorIs(t, b.Submit(o), safe.ErrContextMismatch)
	_, err := s.Capture(func() error { return b.Submit(s) })
	assert.ErrorIs(t, err, safe.ErrCapturing)
	assert.ErrorContains(t, err, "operation 0, a wait", "the event was recorded outside of the capture")

	across := newBatch(t, x)
	require.NoError(t, errors.Join(safe.BatchFill(across, m, 9), safe.BatchCopy(across, far, m), across.Submit(s)))
	got, err := far.Download()
	require.NoError(t, err)
	assert.EqualValues(t, 9, got[7])
	refused := func() {
		err := across.Submit(s)
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "operation 1, a copy: a copy between devices")
	}
	g, err := s.Capture(func() error { refused(); return nil })
	require.NoError(t, err, "the capture survives")
	closing(t, g)
	require.NoError(t, x.WithCurrent(func() error {
		if err := driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); err != nil {
			return err
		}
		refused()
		var g driver.CUgraph
		return errors.Join(driver.CuStreamEndCapture(s.Raw(), &g), driver.CuGraphDestroy(g))
	}), "nor does it end that of other code")
}

// TestBatchOfManyObjects: a batch uses what its operations use, and no more, also after changes and a Reset.
func TestBatchOfManyObjects(t *testing.T) {
	x := open(t, 0)
	s, b, other := stream(t, x), newBatch(t, x), buffer[int32](t, x, 1)
	all := make([]*safe.Buffer[int32], 40)
	for i := range all {
		all[i] = buffer[int32](t, x, 1)
		require.NoError(t, safe.BatchFill(b, all[i], 1))
	}
	require.NoError(t, errors.Join(b.Submit(s), safe.SetBatchFill(b, 0, other, 1), all[0].Close()))
	require.NoError(t, b.Submit(s), "operation 0 uses another buffer")
	require.NoError(t, all[1].Close())
	assert.ErrorIs(t, b.Submit(s), safe.ErrClosed)
	b.Reset()
	require.NoError(t, errors.Join(safe.BatchFill(b, all[2], 1), b.Submit(s), all[2].Close()))
	assert.ErrorIs(t, b.Submit(s), safe.ErrClosed)
	require.NoError(t, s.Synchronize())
}

// TestBatchUses: a launch in a batch uses the memory in LaunchConfig.Uses, too.
func TestBatchUses(t *testing.T) {
	x := open(t, 0)
	s, b, used := stream(t, x), newBatch(t, x), buffer[int32](t, x, 8)
	uses := one
	uses.Uses = []safe.Arg{used.Arg()}
	require.NoError(t, errors.Join(b.Launch(kernel(t, x, "nothing"), uses), b.Submit(s), used.Close()))
	assert.ErrorIs(t, b.Submit(s), safe.ErrClosed)
	require.NoError(t, s.Synchronize())
}

// TestBatchDropped: a batch that was dropped keeps no host functions.
func TestBatchDropped(t *testing.T) {
	x := open(t, 0)
	s, gone := stream(t, x), make(chan struct{})
	func() {
		large := new([1 << 10]int)
		runtime.AddCleanup(large, func(gone chan struct{}) { close(gone) }, gone)
		b := newBatch(t, x)
		require.NoError(t, errors.Join(b.LaunchHostFunc(func() { large[0]++ }), b.Submit(s), s.Synchronize()))
	}()
	collected(t, gone)
}

// TestBatchAccessLost: a batch is refused once the device has lost its access to memory of another one.
func TestBatchAccessLost(t *testing.T) {
	x, y := open(t, 0), second(t)
	if can, err := x.Device().CanAccessPeer(y.Device()); err != nil || !can {
		require.NoError(t, err)
		t.Skip("the devices cannot reach each other's memory")
	}
	s, k, m, far := stream(t, x), kernel(t, x, "store"), buffer[uint64](t, x, 1), buffer[uint64](t, y, 1)
	launch := func(b *safe.Batch) error { return b.Launch(k, one, far.Arg(), safe.Val(uint64(1))) }
	for name, record := range map[string]func(b *safe.Batch) error{
		"a launch":              launch,
		"a launch after a copy": func(b *safe.Batch) error { return errors.Join(safe.BatchCopy(b, m, far), launch(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBatch(t, x)
			require.NoError(t, x.EnablePeerAccess(y))
			require.NoError(t, errors.Join(record(b), b.Submit(s), s.Synchronize()))
			require.NoError(t, x.DisablePeerAccess(y))
			before := safe.Pending(s)
			assert.ErrorIs(t, b.Submit(s), safe.ErrContextMismatch)
			assert.Equal(t, before, safe.Pending(s))
			assert.ErrorIs(t, launch(b), safe.ErrContextMismatch, "nor is another launch recorded")
		})
	}
}

// TestBatchInCapture tests that a captured batch is what the captured calls are.
func TestBatchInCapture(t *testing.T) {
	x := open(t, 0)
	s, other, k := stream(t, x), stream(t, x), kernel(t, x, "store")
	m, h, e, f := buffer[int32](t, x, 4), host[int32](t, x, 4), event(t, x), event(t, x)
	var calls atomic.Int32
	work := func() { calls.Add(1) }
	b, after := newBatch(t, x), newBatch(t, x)
	require.NoError(t, errors.Join(
		safe.BatchCopy(b, m, h), b.Launch(k, one, m.Arg(), safe.Val(uint64(9))), b.Record(e), b.LaunchHostFunc(work), b.Record(f),
		after.WaitEvent(e), after.Record(e), safe.BatchFill(after, h, 4),
	))
	g, err := s.Capture(func() error {
		return errors.Join(b.Submit(s), after.Submit(other), other.Record(e), s.WaitEvent(e)) // other joins
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 4)
	edges, err := g.Edges()
	require.NoError(t, err)
	assert.Len(t, edges, 3)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	require.NoError(t, m.Close(), "the graph retains it")
	b.Reset()
	for range 2 {
		require.NoError(t, exec.Launch(s))
	}
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 2, calls.Load())
	assert.EqualValues(t, 4, h.Data()[0])

	launches := newBatch(t, x)
	require.NoError(t, errors.Join(safe.BatchFill(launches, h, 0), launches.LaunchGraph(exec)))
	g, err = s.Capture(func() error {
		err := launches.Submit(s)
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "operation 1, a graph launch")
		return nil
	})
	require.NoError(t, err, "the capture survives")
	closing(t, g)
	noViolation(t)
}

// TestBatchOfGraphMemory: memory that a graph allocates can be used after its launch.
func TestBatchOfGraphMemory(t *testing.T) {
	x := open(t, 0)
	s, h := stream(t, x), host[int32](t, x, 4)
	var m *safe.Buffer[int32]
	g, err := s.Capture(func() (err error) {
		if m, err = safe.NewBufferAsync[int32](s, 4); err != nil {
			return err
		}
		return m.FillAsync(s, 8)
	})
	require.NoError(t, err)
	closing(t, g)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	b, plain := newBatch(t, x), buffer[int32](t, x, 4)
	for name, record := range map[string]func() error{
		"source":      func() error { return safe.BatchCopy(b, h, m) },
		"destination": func() error { return safe.BatchCopy(b, m, h) },
		"in place of other memory": func() error {
			return errors.Join(safe.BatchFill(b, plain, 1), safe.BatchFill(b, plain, 2), safe.SetBatchFill(b, 1, m, 3))
		},
	} {
		require.NoError(t, record(), name)
		assert.ErrorIs(t, b.Submit(s), safe.ErrNotAllocated, name)
		b.Reset()
	}
	require.NoError(t, errors.Join(b.LaunchGraph(exec), safe.BatchCopy(b, h, m)))
	require.NoError(t, b.Submit(s))
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 8, h.Data()[3])
	require.NoError(t, m.Close())
}

// TestBatchForeignCapture submits to a stream in a capture that this package did not begin.
func TestBatchForeignCapture(t *testing.T) {
	x := open(t, 0)
	s, k, m := stream(t, x), kernel(t, x, "store"), buffer[uint64](t, x, 1)
	b := newBatch(t, x)
	require.NoError(t, errors.Join(b.Launch(k, one, m.Arg(), safe.Val(uint64(1))), safe.BatchFill(b, m, 0)))
	require.NoError(t, x.WithCurrent(func() error {
		if err := driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); err != nil {
			return err
		}
		submitted := b.Submit(s)
		var g driver.CUgraph
		var nodes uint64
		err := errors.Join(submitted, driver.CuStreamEndCapture(s.Raw(), &g), driver.CuGraphGetNodes(g, nil, &nodes))
		assert.EqualValues(t, 2, nodes)
		return errors.Join(err, driver.CuGraphDestroy(g))
	}))
	require.NoError(t, b.Submit(s))
	require.NoError(t, s.Synchronize())
}

func TestBatchKinds(t *testing.T) {
	x := open(t, 0)
	k, m, h, e := kernel(t, x, "store"), buffer[int32](t, x, 4), host[int32](t, x, 4), event(t, x)
	s := stream(t, x)
	g, err := s.Capture(func() error { return m.FillAsync(s, 0) })
	require.NoError(t, err)
	closing(t, g)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	b, err := everyKind(x, k, m, h, e, exec, func() {})
	require.NoError(t, err)
	for i, kind := range strings.Split("copy,launch,record,wait,fill,fill,graph launch,host function,copy", ",") {
		if kind != "launch" {
			assert.ErrorContains(t, b.SetLaunch(i, k, one, m.Arg(), safe.Val(uint64(1))), fmt.Sprintf("operation %d is a %s", i, kind))
		}
	}
	require.NoError(t, b.Submit(s))
	require.NoError(t, s.Synchronize())
}
