//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// What registrations wait for.

package collective

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRegistrationWaits: a registration ends after what uses its memory.
func TestRegistrationWaits(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, w *registered) (finish func()){
		"an operation": func(t *testing.T, w *registered) func() {
			require.NoError(t, w.sum(0))
			w.closeAll(t)
			return func() { require.NoError(t, w.sum(1)) }
		},
		"a group": func(t *testing.T, w *registered) func() {
			group := func(rank int) { // NCCL may wait forever for a rank that groups otherwise
				require.NoError(t, Group(func(g *Calls) error {
					c, s, b := w.comms[rank].In(g), w.streams[rank], w.b[rank]
					return errors.Join(AllReduce(c, s, b, b, Sum), AllReduce(c, s, b, b, Max))
				}))
			}
			group(0)
			w.closeAll(t)
			return func() { group(1) }
		},
		"a part of the memory": func(t *testing.T, w *registered) func() {
			message := func(rank int, f func(*Comm, *safe.Stream, *safe.Buffer[int32], int) error) {
				part, err := w.b[rank].Slice(50, 60)
				require.NoError(t, err)
				require.NoError(t, f(w.comms[rank], w.streams[rank], part, 1-rank))
			}
			message(0, Recv[int32])
			w.closeAll(t)
			return func() { message(1, Send[int32]) }
		},
		"an operation after Close": func(t *testing.T, w *registered) func() {
			require.NoError(t, w.sum(0))
			w.closeAll(t)
			require.NoError(t, w.sum(0))
			require.NoError(t, w.sum(1))
			lasts(t, w.r[0])
			return func() { require.NoError(t, w.sum(1)) }
		},
		"an executable": func(t *testing.T, w *registered) func() {
			e, err := w.streams[0].CaptureExecutable(func() error { return w.sum(0) })
			require.NoError(t, err)
			w.closeAll(t)
			lasts(t, w.r[0])
			for range 2 {
				require.NoError(t, e.Launch(w.streams[0]))
				require.NoError(t, w.sum(1))
			}
			w.wait(t)
			return func() { require.NoError(t, e.Close()) }
		},
		"a launch": func(t *testing.T, w *registered) func() {
			e, err := w.streams[0].CaptureExecutable(func() error { return w.sum(0) })
			require.NoError(t, err)
			require.NoError(t, e.Launch(w.streams[0]))
			require.NoError(t, e.Close())
			w.closeAll(t)
			return func() { require.NoError(t, w.sum(1)) }
		},
		"a capture": func(t *testing.T, w *registered) func() {
			s, err := safe.NewStreamWith(w.contexts[0], safe.StreamOptions{NonBlocking: true})
			require.NoError(t, err)
			begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				g, err := s.Capture(func() error { close(begun); <-end; return nil })
				ended <- errors.Join(err, g.Close(), s.Close())
			}()
			<-begun
			w.closeAll(t)
			return func() { close(end); require.NoError(t, <-ended) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistered(t, 100)
			if len(w.comms) < 2 {
				t.Skip("needs two devices")
			}
			finish := use(t, w)
			lasts(t, w.r[0])
			finish()
			w.over(t)
			w.wait(t)
			assert.Zero(t, told.get(&told.Used))
		})
	}
}

// TestRegisteredPages: NCCL makes registrations one that lie in the same pages, and takes
// other memory in these pages for registered.
func TestRegisteredPages(t *testing.T) {
	w := newRegistered(t, 5000)
	if len(w.comms) < 2 {
		t.Skip("needs two devices")
	}
	var parts, nexts []*safe.Buffer[int32]
	var r []*Registration
	for i, c := range w.comms {
		part, err := w.b[i].Slice(4500, 4510)
		require.NoError(t, err)
		next, err := w.b[i].Slice(0, 4)
		require.NoError(t, err)
		parts, nexts = append(parts, part), append(nexts, next)
		r = append(r, register(t, c, part))
	}
	w.closeAll(t)
	w.over(t)
	sum := func(rank int) error {
		return AllReduce(w.comms[rank], w.streams[rank], nexts[rank], nexts[rank], Sum)
	}
	require.NoError(t, sum(0))
	for _, r := range r {
		require.NoError(t, r.Close())
	}
	if !onGPU {
		lasts(t, r[0])
	}
	require.NoError(t, sum(1))
	for _, r := range r {
		over(t, r)
	}
	w.wait(t)
	for i, c := range w.comms {
		r[i] = register(t, c, parts[i])
		parts[i], _ = w.b[i].Slice(4510, 4520)
	}
	require.NoError(t, Send(w.comms[0], w.streams[0], parts[0], 1))
	require.NoError(t, r[0].Close())
	if !onGPU { // NCCL sends a short message before the other rank receives it
		lasts(t, r[0])
	}
	require.NoError(t, Recv(w.comms[1], w.streams[1], parts[1], 0))
	over(t, r[0])
	w.wait(t)
	assert.Zero(t, told.get(&told.Used))
}

// TestRegisterBeside registers and deregisters beside operations on the same memory.
func TestRegisterBeside(t *testing.T) {
	needsDouble(t) // whose operations may mix registered memory with other memory
	w := newRegistered(t, 100)
	const rounds = 100
	done := make(chan error)
	for i, c := range w.comms {
		go func() {
			var err error
			for range rounds {
				err = errors.Join(err, w.sum(i))
			}
			done <- errors.Join(err, c.Wait(soon(t), w.streams[i]))
		}()
		go func() {
			var err error
			for range rounds {
				r, failed := Register(c, w.b[i])
				err = errors.Join(err, failed, r.Close())
			}
			done <- err
		}()
	}
	for range 2 * len(w.comms) {
		assert.NoError(t, <-done)
	}
	w.closeAll(t)
	require.NoError(t, w.comms.Shutdown(soon(t)))
	w.over(t)
	assert.Zero(t, told.get(&told.Used)+told.get(&told.Stale)+told.get(&told.Freed))
}

// TestRegisterDuringCall registers and deregisters memory after an operation has listed what
// it uses, and before NCCL gets it.
func TestRegisterDuringCall(t *testing.T) {
	needsDouble(t)
	w := newRegistered(t, 100)
	w.closeAll(t)
	w.over(t)
	all := batches.New().(*batch)
	require.NoError(t, AllReduce(w.comms[0].In(&Calls{all: all}), w.streams[0], w.b[0], w.b[0], Sum))
	all.sort()
	require.NoError(t, all.list())
	assert.Len(t, all.on[0].Uses, 2, "the buffer once, and the communicator")
	r := register(t, w.comms[0], w.b[0])
	before := told.get(&told.Operations)
	assert.Equal(t, errStale, all.pass())
	require.NoError(t, all.list())
	assert.Len(t, all.on[0].Uses, 3)

	require.NoError(t, r.Close())
	over(t, r)
	assert.ErrorIs(t, safe.EnqueueRaw(all.enqueue, all.on...), safe.ErrClosed)
	assert.Equal(t, before, told.get(&told.Operations), "NCCL was not called")
	require.NoError(t, all.enqueueAll(), "it lists again")
	assert.Len(t, all.on[0].Uses, 2)
	require.NoError(t, w.sum(1))
	w.wait(t)
}
