//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Green contexts: streams, events, waits, captures, errors. Runs on any driver for CUDA
// 12.4 or newer.

package safe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func green(t *testing.T, x *safe.Context, parts ...safe.SMResource) *safe.GreenContext {
	t.Helper()
	g, err := safe.NewGreenContext(x, parts...)
	require.NoError(t, err)
	closing(t, g)
	return g
}

func greenStream(t *testing.T, g *safe.GreenContext) *safe.Stream {
	t.Helper()
	s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	closing(t, s)
	return s
}

func TestGreenContext(t *testing.T) {
	x := open(t, 0)
	parts := splitInto(t, 2)
	g, h := green(t, x, parts[0]), green(t, x, parts[1])
	s, plain := greenStream(t, g), stream(t, x)
	assert.NotZero(t, g.Raw())
	assert.Equal(t, x.Device(), g.Context().Device())
	part, err := g.SMResource()
	require.NoError(t, err)
	assert.Equal(t, parts[0].Count(), part.Count())
	assert.NotEqual(t, g.Raw(), h.Raw())

	assert.True(t, s.NonBlocking())
	of, err := s.GreenContext()
	require.NoError(t, err)
	assert.Equal(t, g.Raw(), of)
	of, err = plain.GreenContext()
	require.NoError(t, err)
	assert.Zero(t, of)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	of, err = legacy.GreenContext()
	require.NoError(t, err)
	assert.Zero(t, of)
	sms, err := s.SMResource()
	require.NoError(t, err)
	assert.Equal(t, parts[0].Count(), sms.Count())
	sms, err = plain.SMResource()
	require.NoError(t, err)
	all, err := x.Device().SMResource()
	require.NoError(t, err)
	assert.Equal(t, all.Count(), sms.Count())

	both := green(t, x, parts...)
	sms, err = both.SMResource()
	require.NoError(t, err)
	assert.Equal(t, parts[0].Count()+parts[1].Count(), sms.Count())
	again, _, err := sms.Split(safe.SplitOptions{Groups: 2})
	require.NoError(t, err, "what a green context has can be split")
	require.NoError(t, greenStream(t, green(t, x, again[1])).Synchronize())
}

// TestGreenStream: objects of the primary context work on a green stream.
func TestGreenStream(t *testing.T) {
	x := open(t, 0)
	g := green(t, x, splitInto(t, 1)...)
	const n = 1000
	fill, saxpy := kernel(t, x, "fill"), kernel(t, x, "saxpy")
	s, plain, e := greenStream(t, g), stream(t, x), event(t, x)
	a, b, h := buffer[float32](t, x, n), buffer[float32](t, x, n), host[float32](t, x, n)
	before := current(t)
	copy(h.Data(), count(n))
	require.NoError(t, a.CopyFromHostAsync(s, h))
	require.NoError(t, fill.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), b.Arg()))
	require.NoError(t, saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(2)), a.Arg(), b.Arg()))
	require.NoError(t, s.Record(e))
	require.NoError(t, plain.WaitEvent(e))
	require.NoError(t, a.CopyFromAsync(plain, b))
	require.NoError(t, plain.Record(e))
	require.NoError(t, s.WaitEvent(e))
	require.NoError(t, a.CopyToHostAsync(s, h))
	f, err := s.LaunchHostFunc(func() {})
	require.NoError(t, err)
	_, err = f.Wait(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 2*(n-1)+1, h.Data()[n-1])

	async, err := safe.NewBufferAsync[float32](s, n)
	require.NoError(t, err)
	require.NoError(t, async.FillAsync(s, 3))
	got := make([]float32, n)
	require.NoError(t, async.CopyToHost(got), "waits for the green stream")
	assert.EqualValues(t, 3, got[n-1])
	require.NoError(t, async.Close())
	require.NoError(t, s.Scope(func(c *safe.Scope) error { return safe.CopyToSlice(c, got, b) }))
	assert.EqualValues(t, 1, got[0])
	require.NoError(t, s.SynchronizeBlocking())
	require.NoError(t, x.Synchronize())
	assert.Equal(t, before, current(t))
}

// TestGreenStreamFromRaw: streams created elsewhere belong to the primary context too.
func TestGreenStreamFromRaw(t *testing.T) {
	x := open(t, 0)
	g := green(t, x, splitInto(t, 1)...)
	if driver.Find("cuStreamGetCtx_v2") != nil {
		_, err := safe.BorrowStream(greenStream(t, g).Raw(), x, nil)
		assert.ErrorIs(t, err, safe.ErrContextMismatch, "the driver does not tell")
		return
	}
	s := greenStream(t, g)
	borrowed, err := safe.BorrowStream(s.Raw(), x, s)
	require.NoError(t, err)
	closing(t, borrowed)
	raw := greenStream(t, g).Release()
	require.NotZero(t, raw)
	owned, err := safe.StreamFromRaw(raw, x)
	require.NoError(t, err)
	closing(t, owned)
	b := buffer[float32](t, x, 10)
	for _, s := range []*safe.Stream{borrowed, owned} {
		of, err := s.GreenContext()
		require.NoError(t, err)
		assert.Equal(t, g.Raw(), of)
		require.NoError(t, b.FillAsync(s, 1))
		require.NoError(t, s.Synchronize())
	}
	y := second(t)
	_, err = safe.BorrowStream(s.Raw(), y, nil)
	assert.Error(t, err)
}

func TestGreenContextRefuses(t *testing.T) {
	x := open(t, 0)
	parts := splitInto(t, 1)
	g := green(t, x, parts...)
	created := func() (err error) {
		return x.WithCurrent(func() error {
			var raw driver.CUcontext
			if err := driver.CuCtxCreate(&raw, nil, 0, x.Device().Raw()); errors.Is(err, safe.ErrNotSupported) {
				err = driver.CuCtxCreate_v2(&raw, 0, x.Device().Raw())
				require.NoError(t, err)
			} else {
				require.NoError(t, err)
			}
			defer driver.CuCtxDestroy(raw)
			y, err := safe.BorrowContext(raw, nil)
			require.NoError(t, err)
			defer y.Close()
			_, err = safe.NewGreenContext(y, parts...)
			return err
		})
	}
	for _, c := range []struct {
		name string
		do   func() error
		want error
		says string
	}{
		{"no parts", func() error { _, err := safe.NewGreenContext(x); return err }, safe.ErrInvalidArgument, "needs multiprocessors"},
		{"an empty part", func() error { _, err := safe.NewGreenContext(x, parts[0], safe.SMResource{}); return err }, safe.ErrInvalidArgument, "part 1 has no multiprocessors"},
		{"two splits", func() error { _, err := safe.NewGreenContext(x, parts[0], splitInto(t, 1)[0]); return err }, safe.ErrInvalidArgument, "from another split"},
		{"not the primary context", created, safe.ErrContextMismatch, "not the primary context of device 0"},
		{"a blocking stream", func() error { _, err := g.NewStreamWith(safe.StreamOptions{}); return err }, safe.ErrInvalidArgument, "NonBlocking"},
		{"a priority", func() error {
			_, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true, Priority: -1000})
			return err
		}, safe.ErrRange, "-1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.do()
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
		})
	}
	_, greatest := priorities(t, x)
	s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true, Priority: -1000, ClampPriority: true})
	require.NoError(t, err)
	assert.Equal(t, greatest, s.Priority())
	require.NoError(t, s.Close())

	same, err := safe.BorrowContext(x.Raw(), x)
	require.NoError(t, err)
	closing(t, same)
	green(t, same, parts...)

	y := second(t)
	_, err = safe.NewGreenContext(y, parts...)
	assert.ErrorIs(t, err, safe.ErrContextMismatch)
	assert.ErrorIs(t, g.Record(event(t, y)), safe.ErrContextMismatch)
}

// TestGreenWait: an event and a wait cover the work of all streams of a green context,
// and no other work.
func TestGreenWait(t *testing.T) {
	x := open(t, 0)
	gate, fill := newGate(t, x), kernel(t, x, "fill")
	parts := splitInto(t, 2)
	g, h := green(t, x, parts[0]), green(t, x, parts[1])
	a, b, other := greenStream(t, g), greenStream(t, g), greenStream(t, h)
	e, data := event(t, x), buffer[float32](t, x, 10)
	require.NoError(t, g.Synchronize(), "without work")
	require.NoError(t, g.WaitEvent(e), "never recorded")
	launch := func(s *safe.Stream, v float32) {
		require.NoError(t, fill.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(v), data.Arg()))
	}
	launch(a, 1) // before the device is busy
	launch(other, 1)
	require.NoError(t, g.Synchronize())

	gate.shut(t, a)
	launch(a, 2)
	require.NoError(t, g.Record(e))
	done, err := e.Query()
	require.NoError(t, err)
	assert.False(t, done)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, g.Wait(ctx), context.DeadlineExceeded)
	require.NoError(t, h.Synchronize(), "the other one has nothing to do")

	require.NoError(t, h.WaitEvent(e))
	launch(other, 3)
	done, err = other.Query()
	require.NoError(t, err)
	assert.False(t, done)
	waits := make(chan error, 2)
	for _, g := range []*safe.GreenContext{g, h} {
		go func() { waits <- g.Synchronize() }()
	}
	require.NoError(t, b.Synchronize(), "a stream without work")
	gate.open()
	require.NoError(t, <-waits)
	require.NoError(t, <-waits)
	got := make([]float32, 10)
	require.NoError(t, data.CopyToHost(got))
	assert.EqualValues(t, 3, got[9])
	require.NoError(t, e.Synchronize())
}

// TestGreenCapture: work captured on a green stream runs in the green context, which the
// graph retains.
func TestGreenCapture(t *testing.T) {
	startClean(t)
	x := open(t, 0)
	const n = 100
	fill := kernel(t, x, "fill")
	g, err := safe.NewGreenContext(x, splitInto(t, 1)...)
	require.NoError(t, err)
	s, err := g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	plain, e, f := stream(t, x), event(t, x), event(t, x)
	a, b := buffer[float32](t, x, n), buffer[float32](t, x, n)
	lent, err := s.Borrow()
	require.NoError(t, err)
	capture := func(origin, joined *safe.Stream, v float32) *safe.GraphExec {
		exec, err := origin.CaptureExecutable(func() error {
			return first(
				func() error {
					return fill.Launch(origin, perValue(n), safe.Val(uint32(n)), safe.Val(v), a.Arg())
				},
				func() error { return origin.Record(e) },
				func() error { return joined.WaitEvent(e) },
				func() error { return b.CopyFromAsync(joined, a) },
				func() error { return joined.Record(f) },
				func() error { return origin.WaitEvent(f) },
				func() error {
					assert.ErrorIs(t, g.Record(event(t, x)), safe.ErrCapturing)
					assert.ErrorIs(t, g.WaitEvent(event(t, x)), safe.ErrCapturing)
					assert.ErrorIs(t, g.WaitEvent(e), safe.ErrCapturing)
					assert.ErrorIs(t, g.Synchronize(), safe.ErrCapturing)
					_, err := s.SMResource()
					assert.ErrorIs(t, err, safe.ErrCapturing)
					of, err := s.GreenContext()
					assert.NoError(t, err)
					assert.Equal(t, g.Raw(), of)
					_, err = g.SMResource()
					return err
				},
			)
		})
		require.NoError(t, err)
		closing(t, exec)
		return exec
	}
	execs := []*safe.GraphExec{capture(s, plain, 1), capture(plain, s, 2), capture(lent, plain, 3)}
	require.NoError(t, g.Record(e), "no capture any more")
	require.NoError(t, e.Synchronize())
	require.NoError(t, s.Close())
	require.NoError(t, lent.Close())
	require.NoError(t, g.Close())
	for i, exec := range execs {
		require.NoError(t, exec.Launch(plain))
		got := make([]float32, n)
		require.NoError(t, b.CopyToHost(got))
		assert.EqualValues(t, i+1, got[n-1])
	}
	if !onGPU {
		assert.Equal(t, 1, simulated.Live("green"), "kept by the graphs")
	}
}

// onGreen are operations that CUDA refuses with a stream of a green context: the attributes of
// another stream, and other parameters for a kernel node in an executable that was captured there.
var onGreen = map[string]error{
	"Stream.CopyAttributes": safe.ErrContextMismatch,
	"GraphExec.Set":         driver.CUDA_ERROR_INVALID_VALUE,
	"GraphExec.SetAll":      driver.CUDA_ERROR_INVALID_VALUE,
}

// TestGreenOperations tries every operation on a stream of a green context. It does what it
// does on another stream.
func TestGreenOperations(t *testing.T) {
	x := open(t, 0)
	g := green(t, x, splitInto(t, 1)...)
	devices, err := safe.Devices()
	require.NoError(t, err)
	other := min(1, len(devices)-1)
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			want := tried(t, other, op, func(w *world) (*safe.Stream, error) {
				return safe.NewStreamWith(w.x, safe.StreamOptions{NonBlocking: true})
			})
			got := tried(t, other, op, func(*world) (*safe.Stream, error) {
				return g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
			})
			if other, ok := onGreen[op.name]; ok {
				want = other
			}
			if got == safe.ErrContextMismatch && driver.Find("cuStreamGetCtx_v2") != nil {
				return // the driver does not tell the primary context of a stream to borrow
			}
			assert.Equal(t, want, got)
			noViolation(t)
		})
	}
}

// tried returns the cause of an operation's error, or nil, in a world with such a stream.
func tried(t *testing.T, other int, op operation, own func(*world) (*safe.Stream, error)) error {
	t.Helper()
	w, err := newWorldOf(other, own)
	require.NoError(t, err)
	defer func() { assert.NoError(t, w.close()) }()
	err = op.do(w)
	var e *safe.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// TestGreenCopyAll tests copies of memory of each kind on streams of green contexts, also of one
// that other code has made: CUDA 13.0 crashes in a batch of copies with memory of a pool there.
func TestGreenCopyAll(t *testing.T) {
	needs(t, "cuStreamGetCtx_v2")
	const n = 1 << 10
	x := open(t, 0)
	g := green(t, x, splitInto(t, 1)...)
	var raw driver.CUstream
	require.NoError(t, driver.CuGreenCtxStreamCreate(&raw, g.Raw(), driver.CU_STREAM_NON_BLOCKING, 0))
	foreign, err := safe.StreamFromRaw(raw, x)
	require.NoError(t, err)
	closing(t, foreign)
	borrowed, err := foreign.Borrow()
	require.NoError(t, err)
	closing(t, borrowed)
	for name, s := range map[string]*safe.Stream{"own": greenStream(t, g), "foreign": foreign, "borrowed": borrowed} {
		t.Run(name, func(t *testing.T) {
			managed, err := safe.NewManagedBuffer[float32](x, n)
			require.NoError(t, err)
			closing(t, managed)
			async, err := safe.NewBufferAsync[float32](s, n)
			require.NoError(t, err)
			closing(t, async)
			from, to := host[float32](t, x, n), host[float32](t, x, n)
			copy(from.Data(), count(n))
			for name, b := range map[string]*safe.Buffer[float32]{
				"heap": buffer[float32](t, x, n), "plain": plainBuffer[float32](t, x, n), "managed": managed, "async": async,
				"pool": bufferFrom[float32](t, pool(t, x, safe.PoolOptions{}), s, n),
			} {
				clear(to.Data())
				require.NoError(t, s.CopyAll([]safe.CopyOp{safe.NewCopyOp[float32](b, from)}), name)
				require.NoError(t, s.CopyAll([]safe.CopyOp{safe.NewCopyOp[float32](to, b)}), name)
				require.NoError(t, s.Synchronize(), name)
				assert.Equal(t, from.Data(), to.Data(), name)
			}
		})
	}
	noViolation(t)
}
