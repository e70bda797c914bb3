//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Memory of a primary context that was reset, in calls of another context. Each test runs in
// its own process. Runs on any driver with two devices.

package safe_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// survivor is a context beside one that was reset, with memory of both.
type survivor struct {
	x           *safe.Context
	s           *safe.Stream
	fill        *safe.Kernel
	mine, other *safe.Buffer[uint32]
	managed     *safe.Buffer[uint32] // of the other
	pinned      *safe.Pinned[uint32] // of the other
}

func (w *survivor) launch(a safe.Arg) error {
	return w.fill.Launch(w.s, one, safe.Val(uint32(1)), safe.Val(float32(3)), a)
}

func (w *survivor) pitched(copy func(dst, src *safe.Pitched[uint32]) error) error {
	dst, err := w.mine.Pitched(safe.Extent{Width: 4}, 0)
	if err != nil {
		return err
	}
	src, err := w.other.Pitched(safe.Extent{Width: 4}, 0)
	if err != nil {
		return err
	}
	return copy(dst, src)
}

func (w *survivor) batch(record func(*safe.Batch) error) error {
	b, err := safe.NewBatch(w.x)
	if err != nil {
		return err
	}
	return errors.Join(record(b), b.Submit(w.s))
}

// withPeer runs f in its own process, with a context x and one of another device, which f resets.
func withPeer(t *testing.T, f func(t *testing.T, x, y *safe.Context)) {
	t.Helper()
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		y, err := safe.Open(1)
		require.NoError(t, err)
		f(t, x, y)
		assert.NoError(t, y.Close())
		noViolation(t)
		settle(t)
		simulated.Lost() // what went with the context
	})
}

// newSurvivor makes x reach memory of y.
func newSurvivor(t *testing.T, x, y *safe.Context) *survivor {
	t.Helper()
	require.NoError(t, x.EnablePeerAccess(y))
	w := &survivor{x: x, s: stream(t, x), fill: kernel(t, x, "fill"), mine: buffer[uint32](t, x, 4)}
	var err error
	w.other, err = safe.NewBufferWith[uint32](y, 4, safe.BufferOptions{Plain: true})
	require.NoError(t, err)
	return w
}

// TestCloseAfterUseByReset tests that the release of memory asks no stream of another context
// which a reset has destroyed. Drivers before CUDA 12.0 do not tell of the reset.
func TestCloseAfterUseByReset(t *testing.T) {
	needsSimulated(t)
	for _, version := range []string{"11.8", sim.Newest} {
		t.Run(version, func(t *testing.T) {
			withDriver(t, version, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				y, err := safe.Open(1)
				require.NoError(t, err)
				s, err := safe.NewStream(y, safe.StreamOptions{NonBlocking: true})
				require.NoError(t, err)
				h, more := host[uint32](t, x, 4), host[uint32](t, x, 4)
				require.NoError(t, errors.Join(h.ZeroAsync(s), more.ZeroAsync(s), h.Zero(), more.Zero())) // which leave events in pools
				resetPrimary(t, y)
				assert.NoError(t, h.Zero())
				assert.NoError(t, more.Close())
				assert.NoError(t, errors.Join(s.Close(), y.Close()))
				noViolation(t)
				settle(t)
				simulated.Lost() // what went with the context
			})
		})
	}
}

// TestResetAfterCloseOfContext: a context that was closed, but waits for work on a borrowed stream, asks no
// event that a reset has destroyed. Drivers before CUDA 12.0 do not tell of the reset.
func TestResetAfterCloseOfContext(t *testing.T) {
	needsSimulated(t)
	for _, version := range []string{"11.8", sim.Newest} {
		t.Run(version, func(t *testing.T) {
			withDriver(t, version, func(t *testing.T) {
				watch(t)
				other := open(t, 1)
				x, err := safe.Open(0)
				require.NoError(t, err)
				raw := rawStream(t, x)
				s, err := safe.BorrowStream(raw, x, nil)
				require.NoError(t, err)
				unstick := stickOn(t, host[uint32](t, other, 1), s)
				require.NoError(t, errors.Join(s.Close(), x.Close()))
				time.Sleep(10 * time.Millisecond) // for the reaper to begin
				reset := background(func() { assert.NoError(t, x.Device().ResetPrimary()) })
				unstick()
				<-reset
				settle(t)
				noViolation(t)
				simulated.Lost() // what went with the context
			})
		})
	}
}

// TestMemoryOfResetPeer tests that memory which a reset has destroyed reaches the driver from
// no other context.
func TestMemoryOfResetPeer(t *testing.T) {
	needsSimulated(t) // where using the memory is a violation, and no fault
	for name, call := range map[string]func(w *survivor) error{
		"CopyFrom":          func(w *survivor) error { return w.mine.CopyFrom(w.other) },
		"CopyFromAsync":     func(w *survivor) error { return w.mine.CopyFromAsync(w.s, w.other) },
		"CopyFromHostAsync": func(w *survivor) error { return w.mine.CopyFromHostAsync(w.s, w.pinned) },
		"Pitched.CopyFrom":  func(w *survivor) error { return w.pitched((*safe.Pitched[uint32]).CopyFrom) },
		"Pinned.ZeroAsync":  func(w *survivor) error { return w.pinned.ZeroAsync(w.s) },
		"Launch":            func(w *survivor) error { return w.launch(w.other.Arg()) },
		"Launch, managed":   func(w *survivor) error { return w.launch(w.managed.Arg()) },
		"Launch, pinned":    func(w *survivor) error { return w.launch(w.pinned.Arg()) },
		"WriteValue":        func(w *survivor) error { return safe.WriteValue(w.s, w.pinned.At(0), uint32(1)) },
		"Pitched.CopyFromAsync": func(w *survivor) error {
			return w.pitched(func(dst, src *safe.Pitched[uint32]) error { return dst.CopyFromAsync(w.s, src) })
		},
		"BatchCopies": func(w *survivor) error {
			return w.s.BatchCopies([]safe.CopyOp{safe.NewCopyOp[uint32](w.mine, w.pinned)}, safe.BatchCopyOptions{})
		},
		"EnqueueRaw": func(w *survivor) error {
			return w.s.EnqueueRaw(func(driver.CUstream) error { return nil }, w.other.Arg())
		},
		"BatchCopy": func(w *survivor) error {
			return w.batch(func(b *safe.Batch) error { return safe.BatchCopy[uint32](b, w.mine, w.other) })
		},
		"AddKernel": func(w *survivor) error {
			g, err := safe.NewGraph(w.x)
			if err != nil {
				return err
			}
			_, err = g.Add(safe.KernelNode(w.fill, one, safe.Val(uint32(1)), safe.Val(float32(3)), w.other.Arg()))
			return errors.Join(err, g.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, func(t *testing.T, x, y *safe.Context) {
				w := newSurvivor(t, x, y)
				var err error
				w.managed, err = safe.NewManagedBuffer[uint32](y, 4)
				require.NoError(t, err)
				w.pinned, err = safe.NewPinned[uint32](y, 4, safe.PinnedOptions{})
				require.NoError(t, err)
				resetPrimary(t, y)
				assert.ErrorIs(t, call(w), safe.ErrReset)
				assert.NoError(t, w.s.Synchronize())
				assert.NoError(t, errors.Join(w.other.Close(), w.managed.Close(), w.pinned.Close()))
			})
		})
	}
}

// TestGraphOfResetPeer tests that no executable is launched with memory that a reset of another
// context has destroyed.
func TestGraphOfResetPeer(t *testing.T) {
	needsSimulated(t)
	withPeer(t, func(t *testing.T, x, y *safe.Context) {
		require.NoError(t, x.EnablePeerAccess(y))
		s, fill := stream(t, x), kernel(t, x, "fill")
		b, err := safe.NewBufferWith[float32](y, 4, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		g, err := s.Capture(func() error {
			return fill.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg())
		})
		require.NoError(t, err)
		closing(t, g)
		e := executable(t, g)
		require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
		resetPrimary(t, y)
		assert.ErrorIs(t, e.Launch(s), safe.ErrReset)
		assert.NoError(t, s.Synchronize())
		assert.NoError(t, b.Close())
	})
}

// TestResetBesideStuckFree tests that a release which waits for a stuck stream of one device holds
// up neither the reset of another one nor, by that, all other releases.
func TestResetBesideStuckFree(t *testing.T) {
	needsSimulated(t) // a real driver may wait for the stuck stream itself
	withPeer(t, func(t *testing.T, x, y *safe.Context) {
		s := stream(t, x)
		b, err := safe.NewBufferWith[byte](x, 16, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		unstick := stick(t, x, s)
		runtime.KeepAlive(b)
		drop() // cuMemFree waits for all work of the context
		time.Sleep(20 * time.Millisecond)
		reset := make(chan struct{})
		go func() {
			defer close(reset)
			assert.NoError(t, y.Device().ResetPrimary())
		}()
		soon(t, reset, "the reset waits for another device")
		r, gone := resource(t, x)
		require.NoError(t, r.Close())
		soon(t, gone, "other releases wait, too")
		unstick()
		<-reset
	})
}

// TestResetBesideInstantiate: a reset that waits for an instantiation on another device, as does the
// destruction of a graph there, holds up no other releases.
func TestResetBesideInstantiate(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGraphInstantiateWithParams")
	withPeer(t, func(t *testing.T, x, y *safe.Context) {
		_, err := safe.NewGraph(x)
		require.NoError(t, err)
		instantiated := instantiating(t, newGraph(t, x))
		drop()
		reset := background(func() { assert.NoError(t, y.Device().ResetPrimary()) })
		r, gone := resource(t, x)
		require.NoError(t, r.Close())
		soon(t, gone, "the release waits, too")
		simulated.Reset()
		require.NoError(t, <-instantiated)
		<-reset
	})
}

// TestFreeAsyncAfterUseByReset: a release that is ordered after the work of a closed stream waits
// for no event that a reset of the stream's device has destroyed.
func TestFreeAsyncAfterUseByReset(t *testing.T) {
	needsSimulated(t)
	withPeer(t, func(t *testing.T, x, y *safe.Context) {
		s := stream(t, x)
		g := newGraph(t, x)
		b, _, err := safe.AddAllocWith[float32](g, 4, safe.AllocOptions{Access: []safe.Device{y.Device()}})
		require.NoError(t, err)
		e := executable(t, g)
		require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
		other, err := safe.NewStream(y, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		borrowed, err := other.Borrow()
		require.NoError(t, err)
		m, err := safe.LoadFile(y, "testdata/kernels.ptx", safe.LoadOptions{})
		require.NoError(t, err)
		fill, err := m.Kernel("fill")
		require.NoError(t, err)
		unstick := stickOn(t, host[uint32](t, x, 1), borrowed)
		require.NoError(t, fill.Launch(borrowed, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg()))
		require.NoError(t, borrowed.Close()) // leaves an event
		unstick()
		require.NoError(t, other.Synchronize())
		resetPrimary(t, y)
		assert.NoError(t, b.FreeAsync(s))
		assert.NoError(t, errors.Join(s.Synchronize(), m.Close(), other.Close()))
	})
}

// TestBatchOfPeerResetInFlight: a submission that waits for room when a reset of another device
// destroys memory of a later operation enqueues what comes before that, and no more.
func TestBatchOfPeerResetInFlight(t *testing.T) {
	needsSimulated(t)
	for name, row := range map[string]struct {
		kind string
		use  func(b *safe.Batch, w *survivor) error
	}{
		"launch": {"launch", func(b *safe.Batch, w *survivor) error {
			return b.Launch(w.fill, one, safe.Val(uint32(1)), safe.Val(float32(3)), w.other.Arg())
		}},
		"copy": {"copy", func(b *safe.Batch, w *survivor) error { return safe.BatchCopy[uint32](b, w.mine, w.other) }},
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, func(t *testing.T, x, y *safe.Context) {
				w := newSurvivor(t, x, y)
				b, store, last := newBatch(t, x), kernel(t, x, "store"), buffer[uint64](t, x, 1)
				for i := range uint64(queued) {
					require.NoError(t, b.Launch(store, one, last.Arg(), safe.Val(i)))
				}
				require.NoError(t, errors.Join(row.use(b, w), b.Launch(store, one, last.Arg(), safe.Val(uint64(queued)))))
				unstick := stick(t, x, w.s)
				over := make(chan error, 1)
				go func() { over <- b.Submit(w.s) }()
				time.Sleep(100 * time.Millisecond)
				require.Empty(t, over, "the queue is not full")
				resetPrimary(t, y)
				unstick()
				err := <-over
				assert.ErrorIs(t, err, safe.ErrReset)
				assert.ErrorContains(t, err, fmt.Sprintf("operation %d, a %s", queued, row.kind))
				values, err := last.Download()
				assert.NoError(t, err)
				assert.EqualValues(t, []uint64{queued - 1}, values)
				assert.NoError(t, w.other.Close())
			})
		})
	}
}

// TestCopyOfPeerResetInFlight: a synchronous copy that waits for the work of one side does not
// copy what a reset of the other side's device destroys meanwhile.
func TestCopyOfPeerResetInFlight(t *testing.T) {
	needsSimulated(t)
	for name, copy := range map[string]func(w *survivor) error{
		"CopyFrom":         func(w *survivor) error { return w.mine.CopyFrom(w.other) },
		"Pitched.CopyFrom": func(w *survivor) error { return w.pitched((*safe.Pitched[uint32]).CopyFrom) },
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, func(t *testing.T, x, y *safe.Context) {
				w := &survivor{x: x, s: stream(t, x), mine: buffer[uint32](t, x, 4)}
				var err error
				w.other, err = safe.NewBuffer[uint32](y, 4)
				require.NoError(t, err)
				require.NoError(t, w.mine.CopyFrom(w.other))
				unstick := stick(t, x, w.s)
				require.NoError(t, w.mine.ZeroAsync(w.s))
				over := make(chan error, 1)
				go func() { over <- copy(w) }()
				time.Sleep(50 * time.Millisecond)
				resetPrimary(t, y)
				assert.Empty(t, over, "it has not waited")
				unstick()
				assert.ErrorIs(t, <-over, safe.ErrReset)
				assert.NoError(t, errors.Join(w.mine.Zero(), w.other.Close()))
			})
		})
	}
}
