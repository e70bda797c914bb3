//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What a kernel fault does to contexts, callbacks and host functions. Needs any driver,
// simulated or a GPU's.

package safe_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFactFault: a bad store in one context makes CUDA unusable in all. Callbacks with a
// status that wait for the GPU get the code; host functions that do never run. Callbacks
// that wait only for a host function do not notice.
func TestFactFault(t *testing.T) {
	for _, c := range []struct {
		name    string
		notices bool
		front   func(*fault) error
	}{
		{"after a kernel", true, (*fault).gate},
		{"after a host function", false, (*fault).hold},
		{"after a host function and a kernel", true, func(w *fault) error { return first(w.hold, w.gate) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) { dies(t, c.front, c.notices) })
		})
	}
}

// A fault has the objects that exist when the fault happens.
type fault struct {
	t              *testing.T
	x              *safe.Context
	wait           *safe.Kernel
	pending, there driver.CUstream
	event          driver.CUevent
	memory         driver.CUdeviceptr
	other          driver.CUcontext
	release        chan struct{}
}

// gate keeps the pending stream busy for ever.
func (w *fault) gate() error {
	s, err := safe.BorrowStream(w.pending, w.x, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return w.wait.Launch(s, one, safe.Val(uint64(w.memory)))
}

// hold keeps the pending stream busy with a running host function.
func (w *fault) hold() error {
	running := make(chan struct{})
	if err := hostFunc(w.t, w.pending, func() { close(running); <-w.release }); err != nil {
		return err
	}
	<-running
	return nil
}

func dies(t *testing.T, front func(*fault) error, notices bool) {
	w := &fault{t: t, release: make(chan struct{})}
	var err error
	w.x, err = safe.Open(0)
	require.NoError(t, err)
	m, err := safe.LoadFile(w.x, "testdata/kernels.ptx")
	require.NoError(t, err)
	w.wait, err = m.Kernel("wait")
	require.NoError(t, err)
	store, err := m.Kernel("store")
	require.NoError(t, err)
	s, err := safe.NewStreamWith(w.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	status, ran := make(chan int, 1), make(chan bool, 1)
	require.NoError(t, w.x.WithCurrent(func() error {
		return first(
			func() error { return driver.CuStreamCreate(&w.pending, driver.CU_STREAM_NON_BLOCKING) },
			func() error { return driver.CuEventCreate(&w.event, 0) },
			func() error { return driver.CuMemAlloc(&w.memory, factSize) },
			func() error { return driver.CuMemsetD8(w.memory, 0, factSize) },
			func() error { return driver.CuCtxCreate_v2(&w.other, 0, w.x.Device().Raw()) },
			func() error { return driver.CuStreamCreate(&w.there, 0) },
			func() error { return driver.CuStreamSynchronize(w.there) },
			func() error { return driver.CuCtxPopCurrent(&w.other) },
			func() error { return store.Launch(s, one, safe.Val(uint64(w.memory+8)), safe.Val(uint64(0))) }, // loads it
			func() error { return driver.CuCtxSynchronize() },
			func() error { return front(w) },
			func() error { return statusCallback(t, w.pending, func(_ uintptr, code int) { status <- code }) },
			func() error { return hostFunc(t, w.pending, func() { ran <- true }) },
		)
	}))

	require.NoError(t, store.Launch(s, one, safe.Val(uint64(8)), safe.Val(uint64(1))))
	fatal := s.SynchronizeBlocking()
	close(w.release)
	require.True(t, safe.IsFatal(fatal), "%v", fatal)
	var code driver.CUresult
	require.True(t, errors.As(fatal, &code))
	if notices {
		assert.EqualValues(t, code, next(t, status))
	} else {
		assert.Zero(t, next(t, status))
		assert.True(t, next(t, ran))
	}

	elsewhere := func(f func() error) error {
		return onThread(func() error { return first(func() error { return driver.CuCtxSetCurrent(w.other) }, f) })
	}
	inside := func(f func() error) error { return onThreadOf(w.x, f) }
	for _, c := range []struct {
		name string
		on   func(func() error) error
		do   func() error
	}{
		{"StreamQuery in the other context", elsewhere, func() error { return driver.CuStreamQuery(w.there) }},
		{"MemAlloc in the other context", elsewhere, func() error { var p driver.CUdeviceptr; return driver.CuMemAlloc(&p, factSize) }},
		{"CtxCreate", elsewhere, func() error { var c driver.CUcontext; return driver.CuCtxCreate_v2(&c, 0, 0) }},
		{"StreamAddCallback", inside, func() error {
			return statusCallback(t, w.pending, func(uintptr, int) { assert.Fail(t, "a callback that was refused ran") })
		}},
		{"StreamDestroy", inside, func() error { return driver.CuStreamDestroy(w.pending) }},
		{"StreamDestroy in the other context", elsewhere, func() error { return driver.CuStreamDestroy(w.there) }},
		{"EventDestroy", inside, func() error { return driver.CuEventDestroy(w.event) }},
		{"MemFree", inside, func() error { return driver.CuMemFree(w.memory) }},
	} {
		assert.ErrorIs(t, c.on(c.do), code, c.name)
	}
	assert.Empty(t, ran, "a host function after the fault")
	for _, c := range []closer{s, m, w.x} {
		err := c.Close()
		assert.True(t, err == nil || safe.IsFatal(err), "%v", err)
	}
	err = driver.CuCtxDestroy(w.other)
	assert.True(t, err == nil || errors.Is(err, code), "%v", err)
}
