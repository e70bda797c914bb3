//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Waits for and writes of values in memory. Runs on any driver that supports them.

package safe_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// passed returns whether the stream has completed, after some time.
func passed(t *testing.T, s *safe.Stream) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.Wait(ctx)
	if err != nil {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	return err == nil
}

// TestWaitValueConditions waits for values that the host then writes to pinned memory.
func TestWaitValueConditions(t *testing.T) {
	x := open(t, 0)
	s, h := stream(t, x), host[uint32](t, x, 4)
	word := &h.Data()[2]
	t.Cleanup(func() { // the stream must go on even if the test fails
		for _, v := range []uint32{0, 7, ^uint32(0)} {
			atomic.StoreUint32(word, v)
			s.Synchronize()
		}
	})
	for _, c := range []struct {
		name        string
		until       driver.CUstreamWaitValue_flags
		value       uint32
		before, end uint32
	}{
		{"at least", driver.CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
		{"at least, around", driver.CU_STREAM_WAIT_VALUE_GEQ, 1, ^uint32(0), 1},
		{"equal", driver.CU_STREAM_WAIT_VALUE_EQ, 7, 8, 7},
		{"and", driver.CU_STREAM_WAIT_VALUE_AND, 6, 9, 4},
		{"nor", driver.CU_STREAM_WAIT_VALUE_NOR, 1, ^uint32(1), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			atomic.StoreUint32(word, c.before)
			require.NoError(t, safe.WaitValue(s, h.At(2), c.value, c.until))
			assert.False(t, passed(t, s))
			atomic.StoreUint32(word, c.end)
			require.NoError(t, s.Synchronize())
			require.NoError(t, safe.WaitValue(s, h.At(2), c.value, c.until), "again")
			require.NoError(t, s.Synchronize())
		})
	}
}

// TestWriteValueEndsWait: one stream waits for a value that another one writes.
func TestWriteValueEndsWait(t *testing.T) {
	x := open(t, 0)
	t.Run("int32", func(t *testing.T) { writeEndsWait[int32](t, x, -3) })
	t.Run("uint32", func(t *testing.T) { writeEndsWait[uint32](t, x, 1<<31) })
	t.Run("int64", func(t *testing.T) { writeEndsWait[int64](t, x, -1<<40) })
	t.Run("uint64", func(t *testing.T) { writeEndsWait[uint64](t, x, 1<<63) })
}

func writeEndsWait[T safe.MemOpValue](t *testing.T, x *safe.Context, v T) {
	g := newGate(t, x)
	a, b := stream(t, x), stream(t, x)
	flags, data := plainBuffer[T](t, x, 3), buffer[float32](t, x, 100)
	h := host[float32](t, x, 100)
	require.NoError(t, flags.Fill(0))
	require.NoError(t, data.Fill(0))

	g.shut(t, a) // last, so that its cleanup opens it first
	require.NoError(t, data.FillAsync(a, 4))
	require.NoError(t, safe.WriteValue(a, flags.At(1), v))
	require.NoError(t, safe.WaitValue(b, flags.At(1), v, driver.CU_STREAM_WAIT_VALUE_EQ))
	require.NoError(t, data.CopyToHostAsync(b, h))
	require.NoError(t, safe.WriteValue(b, flags.At(2), v+1))
	assert.False(t, passed(t, b))
	g.open()
	require.NoError(t, b.Synchronize())
	assert.EqualValues(t, 4, h.Data()[99], "what was written before the value")

	got := make([]T, 3)
	require.NoError(t, flags.CopyToHost(got))
	assert.Equal(t, []T{0, v, v + 1}, got)
}

// TestMemOpsOnPool: where CUDA rejects memory of a pool, the error names the option that
// helps. Drivers differ in which calls do.
func TestMemOpsOnPool(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	async, err := safe.NewBufferAsync[uint32](s, 2)
	require.NoError(t, err)
	closing(t, async)
	for memory, b := range map[string]*safe.Buffer[uint32]{"NewBufferAsync": async, "NewBuffer": buffer[uint32](t, x, 2)} {
		for call, err := range map[string]error{
			"WriteValue":   safe.WriteValue(s, b.At(0), 1),
			"MemOps":       s.MemOps([]safe.MemOp{safe.NewWriteOp(b.At(0), 1), safe.NewWriteOp(b.At(1), 1)}),
			"MemOpsParams": addAlone(x, safe.MemOpsNode(x, safe.NewWriteOp(b.At(0), 1))),
		} {
			if onGPU && err == nil {
				t.Logf("%s takes memory of %s", call, memory)
				continue
			}
			assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE, call)
			assert.ErrorContains(t, err, "BufferOptions.Plain", call)
		}
	}
	require.NoError(t, s.Synchronize())
}

func TestMemOps(t *testing.T) {
	x := open(t, 0)
	a, b := stream(t, x), stream(t, x)
	h, d := host[uint32](t, x, 300), plainBuffer[int64](t, x, 300)
	clear(h.Data())
	t.Cleanup(func() { atomic.StoreUint32(&h.Data()[0], 1) }) // even if the test fails
	require.NoError(t, d.Fill(0))
	require.NoError(t, a.MemOps(nil))

	ops := []safe.MemOp{safe.NewWaitOp(h.At(0), 1, driver.CU_STREAM_WAIT_VALUE_EQ)}
	for i := 1; i < 254; i++ {
		ops = append(ops, safe.NewWriteOp(d.At(i), int64(-i)))
	}
	ops = append(ops, safe.NewWriteOp(h.At(1), 17))
	require.Len(t, ops, 255)
	require.NoError(t, a.MemOps(ops))
	assert.ErrorIs(t, a.MemOps(append(ops, ops[1])), safe.ErrRange)
	assert.False(t, passed(t, a))
	require.NoError(t, safe.WriteValue(b, h.At(0), 1))
	require.NoError(t, a.Synchronize())
	assert.EqualValues(t, 17, atomic.LoadUint32(&h.Data()[1]))
	got := make([]int64, 300)
	require.NoError(t, d.CopyToHost(got))
	assert.EqualValues(t, 0, got[0])
	assert.EqualValues(t, -253, got[253])

	err := a.MemOps([]safe.MemOp{safe.NewWriteOp(h.At(0), 5), safe.NewWriteOp(h.At(300), 5)})
	assert.ErrorIs(t, err, safe.ErrRange)
	assert.ErrorContains(t, err, "operation 1: index 300 of 300 elements")
	require.NoError(t, a.Synchronize())
	assert.EqualValues(t, 1, h.Data()[0], "none was done")
	assert.ErrorIs(t, a.MemOps(make([]safe.MemOp, 2)), safe.ErrClosed)
}

// TestMemOpsRefused: invalid arguments do not reach CUDA.
func TestMemOpsRefused(t *testing.T) {
	x := open(t, 0)
	s, d, h := stream(t, x), plainBuffer[uint32](t, x, 8), host[int64](t, x, 8)
	for _, i := range []int{-1, 8} {
		assert.ErrorIs(t, safe.WriteValue(s, d.At(i), 1), safe.ErrRange)
		assert.ErrorIs(t, safe.WaitValue(s, h.At(i), 1, 0), safe.ErrRange)
	}
	part, err := d.Slice(4, 6)
	require.NoError(t, err)
	assert.ErrorIs(t, safe.WriteValue(s, part.At(2), 1), safe.ErrRange)
	require.NoError(t, d.Fill(0))
	require.NoError(t, safe.WriteValue(s, part.At(1), 3))
	got := make([]uint32, 8)
	require.NoError(t, d.CopyToHost(got))
	assert.Equal(t, []uint32{0, 0, 0, 0, 0, 3, 0, 0}, got)
	tail, err := h.Slice(5, 8)
	require.NoError(t, err)
	require.NoError(t, safe.WriteValue(s, tail.At(1), -9))
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, -9, h.Data()[6])

	assert.ErrorIs(t, safe.WaitValue(s, d.At(0), 0, 4), driver.CUDA_ERROR_INVALID_VALUE, "no such condition")
	flushes, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)
	require.NoError(t, err)
	err = safe.WaitValue(s, d.At(0), 0, driver.CU_STREAM_WAIT_VALUE_FLUSH)
	if flushes == 0 {
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		assert.ErrorContains(t, err, "CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES")
	}
	other, err := safe.NewBufferWith[uint32](x, 1, safe.BufferOptions{Plain: true})
	require.NoError(t, err)
	e := other.At(0)
	require.NoError(t, other.Close())
	assert.ErrorIs(t, safe.WriteValue(s, e, 1), safe.ErrClosed)
	require.NoError(t, s.Synchronize())
	y := second(t)
	assert.ErrorIs(t, safe.WriteValue(stream(t, y), d.At(0), 1), safe.ErrContextMismatch)
	require.NoError(t, safe.WriteValue(stream(t, y), h.At(0), 1), "all contexts reach pinned memory")
}

// TestMemOpsKeepMemory: memory that is closed or dropped is freed after the wait that
// uses it.
func TestMemOpsKeepMemory(t *testing.T) {
	x := open(t, 0)
	s, h := stream(t, x), host[uint32](t, x, 1)
	h.Data()[0] = 0
	release := func() { atomic.StoreUint32(&h.Data()[0], 1) }
	t.Cleanup(release)
	require.NoError(t, safe.WaitValue(s, h.At(0), 1, driver.CU_STREAM_WAIT_VALUE_GEQ))
	func() {
		b, err := safe.NewBufferWith[uint64](x, 1000, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		require.NoError(t, safe.WriteValue(s, b.At(999), 1))
	}()
	b, err := safe.NewBufferWith[uint64](x, 1000, safe.BufferOptions{Plain: true})
	require.NoError(t, err)
	require.NoError(t, safe.WriteValue(s, b.At(999), 1))
	drop()
	closed := make(chan error)
	go func() { closed <- b.Close() }()
	select {
	case <-closed:
		t.Error("closed while the stream may still write to it")
	case <-time.After(20 * time.Millisecond):
	}
	release()
	require.NoError(t, <-closed)
	require.NoError(t, s.Synchronize())
}

// TestMemOpsCaptured: in a graph, operations run at each launch.
func TestMemOpsCaptured(t *testing.T) {
	x := open(t, 0)
	s, h := stream(t, x), host[uint32](t, x, 3)
	var exec *safe.GraphExec
	func() {
		b, err := safe.NewBufferWith[uint32](x, 1, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		require.NoError(t, b.Fill(0))
		exec, err = s.CaptureExecutable(func() error {
			return first(
				func() error { return safe.WaitValue(s, h.At(0), 1, driver.CU_STREAM_WAIT_VALUE_GEQ) },
				func() error {
					return s.MemOps([]safe.MemOp{safe.NewWriteOp(h.At(0), 0), safe.NewWriteOp(b.At(0), 2), safe.NewWriteOp(h.At(1), 3)})
				},
			)
		})
		require.NoError(t, err)
		runtime.KeepAlive(b)
	}()
	closing(t, exec)
	t.Cleanup(func() { atomic.StoreUint32(&h.Data()[0], 1) }) // even if the test fails
	drop()
	for range 3 {
		clear(h.Data())
		require.NoError(t, exec.Launch(s))
		assert.False(t, passed(t, s))
		atomic.StoreUint32(&h.Data()[0], 1)
		require.NoError(t, s.Synchronize())
		assert.Equal(t, []uint32{0, 3, 0}, h.Data())
	}
}
