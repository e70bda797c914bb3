//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Registered buffers. The double of NCCL notes registrations that end twice, too late, or
// before the operations on their memory: see leftOver.

package collective

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// registered is a buffer of each rank with its registration.
type registered struct {
	*world
	b []*safe.Buffer[int32]
	r []*Registration
}

// newRegistered makes buffers of n values i+1 for rank i, and registers them.
func newRegistered(t *testing.T, n int) *registered {
	t.Helper()
	w := &registered{world: newWorld(t)}
	w.b = plain(t, w.world, n)
	w.warm(t, filled(t, w.world, 4, func(int, int) int32 { return 1 }))
	t.Cleanup(func() {
		if t.Failed() {
			w.comms[0].Abort(errors.New("the test has failed")) // else stuck streams stay
		}
	})
	for i, c := range w.comms {
		w.r = append(w.r, register(t, c, w.b[i]))
	}
	return w
}

// plain makes buffers of n values i+1 for rank i, of memory that NCCL registers.
func plain(t *testing.T, w *world, n int) (all []*safe.Buffer[int32]) {
	t.Helper()
	for i, x := range w.contexts {
		b, err := safe.NewBufferWith[int32](x, n, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, b.Close()) })
		require.NoError(t, b.Fill(int32(i+1)))
		all = append(all, b)
	}
	return all
}

func register[T any](t *testing.T, c *Comm, b *safe.Buffer[T]) *Registration {
	t.Helper()
	r, err := Register(c, b)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

// sum enqueues the sum at one rank.
func (w *registered) sum(rank int) error {
	return AllReduce(w.comms[rank], w.streams[rank], w.b[rank], w.b[rank], Sum)
}

func (w *registered) sumAll(t *testing.T) {
	t.Helper()
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, w.b[i], w.b[i], Sum) }))
}

func (w *registered) closeAll(t *testing.T) {
	t.Helper()
	for _, r := range w.r {
		require.NoError(t, r.Close())
	}
}

func (w *registered) over(t *testing.T) {
	t.Helper()
	for _, r := range w.r {
		over(t, r)
	}
}

func over(t *testing.T, r *Registration) {
	t.Helper()
	select {
	case <-r.Done():
	case <-time.After(time.Minute):
		require.FailNow(t, "the registration has not ended")
	}
}

// lasts checks that a registration does not end, as far as that can be seen.
func lasts(t *testing.T, r *Registration) {
	t.Helper()
	select {
	case <-r.Done():
		require.FailNow(t, "the registration has ended")
	case <-time.After(20 * time.Millisecond):
	}
}

func allocated(t *testing.T, x *safe.Context, address driver.CUdeviceptr) bool {
	t.Helper()
	err := x.WithCurrent(func() error {
		var start driver.CUdeviceptr
		var size uint64
		return driver.CuMemGetAddressRange(&start, &size, address)
	})
	return err == nil
}

// freed waits until memory is freed.
func freed(t *testing.T, x *safe.Context, address driver.CUdeviceptr) {
	t.Helper()
	assert.Eventually(t, func() bool { return !allocated(t, x, address) }, time.Minute, time.Millisecond)
}

func TestRegister(t *testing.T) {
	for name, test := range map[string]struct {
		busy, skips int32
		part        bool
		again       bool
	}{
		"a buffer":           {},
		"a part":             {part: true},
		"twice":              {again: true},
		"NCCL takes time":    {busy: 50},
		"NCCL takes no part": {skips: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if test.busy+test.skips > 0 {
				needsDouble(t)
			}
			released(t) // with the registrations of other tests
			w := newRegistered(t, 2000)
			if test.busy+test.skips > 0 {
				tell(t, &told.Busy, test.busy)
				tell(t, &told.Skips, test.skips)
			}
			for i, c := range w.comms {
				b := w.b[i]
				if test.part {
					var err error
					b, err = b.Slice(1500, 1900)
					require.NoError(t, err)
				}
				w.r = append(w.r, register(t, c, b))
				if test.again {
					w.r = append(w.r, register(t, c, b))
				}
			}
			w.sumAll(t)
			w.wait(t)
			want := int32(len(w.comms) * (len(w.comms) + 1) / 2)
			assert.Equal(t, want, contents(t, w.b[0])[1999])
			w.closeAll(t)
			w.closeAll(t)
			w.over(t)
			assert.Equal(t, told.get(&told.Registered), told.get(&told.Deregistered)+told.get(&told.Cleaned))
			w.sumAll(t)
			w.wait(t)
			assert.NoError(t, w.comms[0].Err())
		})
	}
}

// TestRegisteredMemory: the memory of a registration outlives its buffer. NCCL releases the
// registrations of a communicator that was aborted, and no others.
func TestRegisteredMemory(t *testing.T) {
	for name, test := range map[string]struct {
		end     func(t *testing.T, w *registered)
		cleaned int // by NCCL
	}{
		"Close":    {func(t *testing.T, w *registered) { w.closeAll(t) }, 0},
		"Shutdown": {func(t *testing.T, w *registered) { require.NoError(t, w.comms.Shutdown(soon(t))) }, 0},
		"Abort":    {func(t *testing.T, w *registered) { w.comms[0].Abort(nil) }, 2},
		"Abort after Close": {func(t *testing.T, w *registered) {
			w.stuck(t)
			require.NoError(t, w.sum(0))
			w.closeAll(t)
			w.comms[0].Abort(nil)
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			needsDouble(t)
			w := newRegistered(t, 100)
			w.sumAll(t)
			w.wait(t)
			var at []driver.CUdeviceptr
			for i, b := range w.b {
				at = append(at, b.Raw())
				if name != "Abort after Close" {
					require.NoError(t, b.Close())
				}
				lasts(t, w.r[i])
				assert.True(t, allocated(t, w.contexts[i], at[i]))
			}
			before := told.get(&told.Cleaned)
			test.end(t, w)
			w.over(t)
			for i, b := range w.b {
				require.NoError(t, b.Close())
				freed(t, w.contexts[i], at[i])
			}
			if test.cleaned >= 0 {
				assert.EqualValues(t, test.cleaned, told.get(&told.Cleaned)-before)
			}
			assert.Zero(t, told.get(&told.Freed))
		})
	}
}

// TestRegisteredMemoryOfAll: NCCL releases the ranks of a process with the last of them, so registered memory of all stays
// until then.
func TestRegisteredMemoryOfAll(t *testing.T) {
	for name, test := range map[string]struct {
		joined bool
		last   func(t *testing.T, w *registered) (release func()) // keeps NCCL from releasing rank 1
	}{
		"of one Open": {false, func(t *testing.T, w *registered) func() {
			last := w.comms[1].core
			last.mu.Lock() // as a call does
			unlock := sync.OnceFunc(last.mu.Unlock)
			t.Cleanup(unlock)
			return unlock
		}},
		"of two Join": {true, func(t *testing.T, w *registered) func() { return func() { require.NoError(t, w.comms[1].Close()) } }},
	} {
		t.Run(name, func(t *testing.T) {
			needsDouble(t) // else it depends on the memory whether NCCL registers it
			w := newRegistered(t, 100)
			if test.joined {
				w.closeAll(t)
				w.over(t)
				w = &registered{world: &world{joinAll(t, w.contexts), w.contexts, w.streams}, b: w.b}
				for i, c := range w.comms {
					w.r = append(w.r, register(t, c, w.b[i]))
				}
			}
			at := w.b[0].Raw()
			require.NoError(t, w.b[0].Close())
			release := test.last(t, w)
			w.comms[0].Abort(nil)
			<-w.comms[0].core.gone
			lasts(t, w.r[0])
			assert.True(t, allocated(t, w.contexts[0], at))
			release()
			w.over(t)
			freed(t, w.contexts[0], at)
			assert.Zero(t, told.get(&told.Freed))
		})
	}
}

// joinAll makes a rank of each context by a Join of its own.
func joinAll(t *testing.T, contexts []*safe.Context) Comms {
	t.Helper()
	id, err := NewUniqueID()
	require.NoError(t, err)
	comms, ranks := make(Comms, len(contexts)), sync.WaitGroup{}
	for i, x := range contexts {
		ranks.Go(func() {
			c, err := Join(soon(t), x, Options{Rank: i, Size: len(contexts), IDs: []UniqueID{id}})
			assert.NoError(t, err)
			comms[i] = c
		})
	}
	ranks.Wait()
	t.Cleanup(func() { assert.NoError(t, comms.Close()) })
	return comms
}

func TestRegisterRefused(t *testing.T) {
	w := newWorld(t)
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	c, s := w.comms[0], w.streams[0]
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	empty := filled(t, w, 0, func(int, int) int32 { return 1 })[0]
	gone, err := safe.NewBuffer[int32](w.contexts[0], 4)
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	other, err := Open(soon(t), w.contexts[0])
	require.NoError(t, err)
	require.NoError(t, other.Shutdown(soon(t)))
	aborted, err := Open(soon(t), w.contexts[0])
	require.NoError(t, err)
	cause := errors.New("enough")
	aborted[0].Abort(cause)
	var ofGraph, capturing error
	g, err := s.Capture(func() error {
		allocated, err := safe.NewBufferAsync[int32](s, 4)
		_, ofGraph = Register(c, allocated)
		_, capturing = Register(c, b[0])
		return errors.Join(err, allocated.Close())
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	of := func(c *Comm, b *safe.Buffer[int32]) error { _, err := Register(c, b); return err }
	before := told.get(&told.Registered)
	for _, test := range []struct {
		name string
		err  error
		want error
		says string
	}{
		{"no communicator", of(nil, b[0]), safe.ErrClosed, "collective.Register"},
		{"a closed one", of(other[0], b[0]), safe.ErrClosed, ""},
		{"an aborted one", of(aborted[0], b[0]), cause, "aborted"},
		{"no buffer", of(c, nil), safe.ErrClosed, "the buffer"},
		{"a closed buffer", of(c, gone), safe.ErrClosed, "the buffer"},
		{"an empty buffer", of(c, empty), safe.ErrInvalidArgument, "the buffer is empty"},
		{"another's memory", of(c, b[1]), safe.ErrContextMismatch, "the buffer is on device 1, the communicator on device 0"},
		{"memory of a graph", ofGraph, safe.ErrInvalidArgument, "launches of a graph"},
		{"in a capture", capturing, safe.ErrCapturing, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.ErrorIs(t, test.err, test.want)
			assert.ErrorContains(t, test.err, test.says)
			var e *safe.Error
			assert.ErrorAs(t, test.err, &e)
			assert.Equal(t, "collective.Register", e.Op)
		})
	}
	assert.Equal(t, before, told.get(&told.Registered), "NCCL sees none of them")
	for _, r := range []*Registration{nil, {}} {
		assert.NoError(t, r.Close())
		<-r.Done()
	}
}

// TestRegisterFails: NCCL refuses.
func TestRegisterFails(t *testing.T) {
	needsDouble(t)
	w := newRegistered(t, 100)
	tell(t, &told.Fail, int32(nccl.NcclSystemError))
	_, err := Register(w.comms[0], w.b[0])
	assert.ErrorIs(t, err, nccl.NcclSystemError)
	assert.ErrorContains(t, err, "told by a test")
	assert.NoError(t, w.comms[0].Err(), "the communicator works as before")

	reported := make(chan error, 10)
	safe.OnError(func(err error) { reported <- err })
	defer safe.OnError(nil)
	told.Fail = int32(nccl.NcclSystemError)
	at := w.b[0].Raw()
	require.NoError(t, errors.Join(w.r[0].Close(), w.b[0].Close()))
	err = <-reported
	assert.ErrorIs(t, err, nccl.NcclSystemError)
	assert.ErrorContains(t, err, "Registration.Close")
	lasts(t, w.r[0])
	assert.True(t, allocated(t, w.contexts[0], at), "NCCL may still use it")
	require.NoError(t, w.comms.Shutdown(soon(t)))
	w.over(t)
	freed(t, w.contexts[0], at)
}

// TestRegisterAborted: an abort ends calls that NCCL does not complete.
func TestRegisterAborted(t *testing.T) {
	for name, call := range map[string]func(w *registered) error{
		"Register": func(w *registered) error { _, err := Register(w.comms[0], w.b[0]); return err },
		"Close": func(w *registered) error {
			err := w.r[0].Close()
			<-w.r[0].Done()
			return errors.Join(err, w.comms[0].Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			needsDouble(t)
			w := newRegistered(t, 100)
			tell(t, &told.Busy, 1<<30)
			calls := func() int32 { return told.get(&told.Registered) + told.get(&told.Deregistered) }
			before := calls()
			done := make(chan error)
			go func() { done <- call(w) }()
			for calls() == before {
				runtime.Gosched()
			}
			cause := errors.New("enough")
			w.comms[0].Abort(cause)
			assert.ErrorIs(t, <-done, cause)
			w.over(t)
		})
	}
}

// TestRegistrationDropped: registrations that the program forgets end, and are reported if
// asked. Those that end with their communicator are no leaks.
func TestRegistrationDropped(t *testing.T) {
	w := newWorld(t)
	b := plain(t, w, 4)
	leaks := make(chan error, 100)
	safe.TrackLeaks(true)
	safe.OnError(func(err error) { leaks <- err })
	t.Cleanup(func() { safe.TrackLeaks(false); safe.OnError(nil) })
	drop := func() <-chan struct{} {
		r, err := Register(w.comms[0], b[0])
		require.NoError(t, err)
		return r.Done()
	}
	done := drop()
	assert.Eventually(t, func() bool { runtime.GC(); return len(leaks) > 0 }, time.Minute, 10*time.Millisecond)
	assert.ErrorContains(t, <-leaks, "a Registration was dropped while it was open")
	<-done
	assert.Empty(t, leaks)

	func() {
		r, err := Register(w.comms[0], b[0])
		require.NoError(t, err)
		require.NoError(t, w.comms.Shutdown(soon(t)))
		over(t, r)
	}()
	for range 3 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	assert.Empty(t, leaks)
}

// TestRegisteredAllocations: an operation on registered memory allocates no more than others.
func TestRegisteredAllocations(t *testing.T) {
	w := newWorld(t)
	alone, err := Open(soon(t), w.contexts[0])
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, alone.Close()) })
	b := plain(t, w, 4)[0]
	least := func() float64 {
		n := 1e9
		for range 20 { // as other goroutines allocate, too
			n = min(n, testing.AllocsPerRun(10, func() { assert.NoError(t, AllReduce(alone[0], w.streams[0], b, b, Sum)) }))
			require.NoError(t, alone[0].Wait(soon(t), w.streams[0]))
		}
		return n
	}
	before := least()
	register(t, alone[0], b)
	assert.LessOrEqual(t, least(), before+1, "the pool of groups may be emptied meanwhile")
}

// TestRegisterTooOld: NCCL before 2.19 has no registrations.
func TestRegisterTooOld(t *testing.T) {
	if onOlder(t, "-DBEFORE_2_19") {
		return
	}
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	_, err := Register(w.comms[0], b[0])
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "collective.Register: ")
	assert.ErrorContains(t, err, "ncclCommRegister")
	assert.NoError(t, w.comms[0].Err())
}
