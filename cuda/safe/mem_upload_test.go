//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Upload, Download, NewZeroed, and memory for no values. Runs on any driver.

package safe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpload(t *testing.T) {
	x := open(t, 0)
	for _, values := range [][]int32{{1, 2, 3}, {}, nil} {
		b, err := safe.Upload(x, values)
		require.NoError(t, err)
		closing(t, b)
		assert.Equal(t, len(values), b.Len())
		got, err := b.Download()
		require.NoError(t, err)
		assert.Equal(t, append([]int32{}, values...), got)
	}
	_, err := safe.Upload(x, []string{"text"})
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorContains(t, err, "Upload")
}

// TestDownload: Download waits for the work that uses the buffer.
func TestDownload(t *testing.T) {
	x := open(t, 0)
	g, s, b := newGate(t, x), stream(t, x), buffer[int32](t, x, 3)
	g.shut(t, s)
	require.NoError(t, b.FillAsync(s, 7))
	done := make(chan []int32)
	go func() {
		got, err := b.Download()
		assert.NoError(t, err)
		done <- got
	}()
	g.open()
	assert.Equal(t, []int32{7, 7, 7}, <-done)
	_, err := s.Capture(func() error {
		require.NoError(t, b.FillAsync(s, 0))
		_, err := b.Download()
		return err
	})
	assert.ErrorIs(t, err, safe.ErrCapturing)
}

func TestNewZeroed(t *testing.T) {
	x := open(t, 0)
	for _, n := range []int{0, 1, 1000} {
		b, err := safe.NewZeroed[[3]float64](x, n)
		require.NoError(t, err)
		closing(t, b)
		got, err := b.Download()
		require.NoError(t, err)
		assert.Equal(t, make([][3]float64, n), got)
	}
	_, err := safe.NewZeroed[int](x, -1)
	assert.ErrorIs(t, err, safe.ErrRange)
}

// TestUploadFails: nothing is left over if the copy fails.
func TestUploadFails(t *testing.T) {
	if onGPU {
		t.Skip("errors are injected into the simulated driver")
	}
	startClean(t)
	x := open(t, 0)
	for op, call := range map[string]func() error{
		"cuMemcpyHtoDAsync_v2":    func() error { _, err := safe.Upload(x, []int32{1}); return err },
		"cuMemsetD8Async":         func() error { _, err := safe.NewZeroed[int32](x, 1); return err },
		"cuMemAllocFromPoolAsync": func() error { _, err := safe.Upload(x, []int32{1}); return err },
	} {
		t.Run(op, func(t *testing.T) {
			before := simulated.Live("async")
			simulated.Fail(op, 1, uint32(driver.CUDA_ERROR_UNKNOWN))
			assert.ErrorIs(t, call(), driver.CUDA_ERROR_UNKNOWN)
			assert.Eventually(t, func() bool { return simulated.Live("async") == before }, atOnce, time.Millisecond)
		})
	}
}

// empties are buffers of no values, of every kind.
func empties(t *testing.T, x *safe.Context, s *safe.Stream) map[string]*safe.Buffer[int32] {
	t.Helper()
	all := map[string]*safe.Buffer[int32]{}
	add := func(name string, b *safe.Buffer[int32], err error) {
		require.NoError(t, err, name)
		closing(t, b)
		all[name] = b
	}
	b, err := safe.NewBuffer[int32](x, 0)
	add("NewBuffer", b, err)
	b, err = safe.NewBufferAsync[int32](s, 0)
	add("NewBufferAsync", b, err)
	b, err = safe.NewManagedBuffer[int32](x, 0)
	add("NewManagedBuffer", b, err)
	b, err = safe.BorrowBuffer[int32](x, 0, 0, nil)
	add("BorrowBuffer", b, err)
	pool, err := safe.NewPool(x)
	require.NoError(t, err)
	closing(t, pool)
	b, err = safe.NewBufferFrom[int32](pool, s, 0)
	add("NewBufferFrom", b, err)
	full := buffer[int32](t, x, 10)
	for _, at := range []int{0, 5, 10} {
		b, err = full.Slice(at, at)
		add(fmt.Sprint("Slice ", at), b, err)
	}
	b, err = safe.Cast[int32](all["NewBuffer"])
	add("Cast", b, err)
	return all
}

func TestEmptyBuffers(t *testing.T) {
	x := open(t, 0)
	s, full := stream(t, x), buffer[int32](t, x, 10)
	h, err := safe.NewPinned[int32](x, 0)
	require.NoError(t, err)
	closing(t, h)
	store := kernel(t, x, "fill")
	for name, b := range empties(t, x, s) {
		t.Run(name, func(t *testing.T) {
			assert.Zero(t, b.Len())
			assert.Zero(t, b.Size())
			assert.Zero(t, b.Raw(), "as documented")
			for op, call := range map[string]func() error{
				"CopyFromHost":      func() error { return b.CopyFromHost(nil) },
				"CopyToHost":        func() error { return b.CopyToHost(nil) },
				"CopyFrom":          func() error { return b.CopyFrom(b) },
				"to another":        func() error { return full.CopyFrom(b) },
				"CopyFromAsync":     func() error { return full.CopyFromAsync(s, b) },
				"CopyFromHostAsync": func() error { return b.CopyFromHostAsync(s, h) },
				"CopyToHostAsync":   func() error { return b.CopyToHostAsync(s, h) },
				"Zero":              func() error { return b.Fill(0) },
				"FillAsync of 0":    func() error { return b.FillAsync(s, 0) },
				"Fill":              func() error { return b.Fill(1) },
				"FillAsync":         func() error { return b.FillAsync(s, 1) },
				"Scope": func() error {
					return s.Scope(func(c *safe.Scope) error {
						if err := safe.CopyFromSlice(c, b, nil); err != nil {
							return err
						}
						return safe.CopyToSlice(c, nil, b)
					})
				},
				"captured": func() error {
					g, err := s.Capture(func() error { return b.FillAsync(s, 0) })
					if err == nil {
						err = g.Close()
					}
					return err
				},
				"Launch": func() error {
					return store.Launch(s, one, safe.Val(uint32(0)), safe.Val(float32(1)), b.Arg())
				},
			} {
				assert.NoError(t, call(), op)
			}
			for op, call := range map[string]func() error{
				"CopyFromHost": func() error { return b.CopyFromHost(make([]int32, 1)) },
				"CopyFrom":     func() error { return b.CopyFrom(full) },
				"Slice":        func() error { _, err := b.Slice(0, 1); return err },
				"negative":     func() error { _, err := b.Slice(-1, 0); return err },
				"WriteValue":   func() error { return safe.WriteValue(s, full.At(10), 1) },
				"Pitched":      func() error { _, err := b.Pitched(safe.Extent{Width: 1}, 4); return err },
				"no extent":    func() error { _, err := b.Pitched(safe.Extent{}, 4); return err },
				"CopyNode":     func() error { return addAlone(x, safe.CopyNode[int32](full, b)) },
				"a batch of them": func() error {
					return s.CopyAll([]safe.CopyOp{safe.NewCopyOp[int32](full, b)})
				},
			} {
				assert.ErrorIs(t, call(), safe.ErrRange, op)
			}
			_, err := b.IPCHandle()
			assert.ErrorIs(t, err, safe.ErrInvalidArgument)
			_, err = safe.NewLinearTexture(b, safe.TextureOptions{})
			assert.ErrorIs(t, err, safe.ErrInvalidArgument)
		})
	}
}

// addAlone adds a node to a graph of its own.
func addAlone(x *safe.Context, p safe.NodeParams) error {
	g, err := safe.NewGraph(x)
	if err != nil {
		return err
	}
	defer g.Close()
	_, err = g.Add(p)
	return err
}

func TestEmptyManaged(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	b, err := safe.NewManagedBuffer[int32](x, 0)
	require.NoError(t, err)
	closing(t, b)
	assert.Equal(t, []int32{}, b.Data())
	assert.NoError(t, b.AttachAsync(s, driver.CU_MEM_ATTACH_HOST))
	assert.NoError(t, b.Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, safe.Location{}))
}

func TestEmptyPinned(t *testing.T) {
	x := open(t, 0)
	s, full, b := stream(t, x), host[int32](t, x, 10), buffer[int32](t, x, 10)
	none, err := safe.NewPinned[int32](x, 0)
	require.NoError(t, err)
	closing(t, none)
	registered, err := safe.RegisterPinned(x, []int32{})
	require.NoError(t, err)
	closing(t, registered)
	last, err := full.Slice(10, 10)
	require.NoError(t, err)
	for name, h := range map[string]*safe.Pinned[int32]{"NewPinned": none, "RegisterPinned": registered, "Slice": last} {
		t.Run(name, func(t *testing.T) {
			assert.Zero(t, h.Size())
			assert.Equal(t, []int32{}, h.Data())
			assert.NoError(t, b.CopyFromHostAsync(s, h))
			fill := kernel(t, x, "fill")
			assert.NoError(t, fill.Launch(s, one, safe.Val(uint32(0)), safe.Val(float32(1)), h.Arg()))
			assert.ErrorIs(t, b.CopyToHostAsync(s, h), safe.ErrRange)
			assert.ErrorContains(t, addAlone(x, safe.CopyNode[int32](b, h)), "no values")
		})
	}
}

// TestEmptyRefused: what cannot be empty, and negative numbers of values.
func TestEmptyRefused(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, g)
	short := buffer[byte](t, x, 3)
	for name, call := range map[string]func() error{
		"NewBuffer":        func() error { _, err := safe.NewBuffer[int](x, -1); return err },
		"NewBufferAsync":   func() error { _, err := safe.NewBufferAsync[int](s, -1); return err },
		"NewManagedBuffer": func() error { _, err := safe.NewManagedBuffer[int](x, -1); return err },
		"NewPinned":        func() error { _, err := safe.NewPinned[int](x, -1); return err },
		"BorrowBuffer":     func() error { _, err := safe.BorrowBuffer[int](x, 8, -1, nil); return err },
		"AddAlloc":         func() error { _, _, err := safe.AddAlloc[int](g, 0); return err },
		"OpenIPCBuffer":    func() error { _, err := safe.OpenIPCBuffer[int](x, driver.CUipcMemHandle{}, 0); return err },
		"NewPitched":       func() error { _, err := safe.NewPitched[int](x, safe.Extent{}); return err },
		"Cast":             func() error { _, err := safe.Cast[int32](short); return err },
	} {
		assert.ErrorIs(t, call(), safe.ErrRange, name)
	}
}

func FuzzSlice(f *testing.F) {
	for _, seed := range [][3]int{{0, 0, 0}, {10, 10, 10}, {10, 0, 10}, {10, 5, 4}, {10, -1, 3}, {0, 0, 1}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	x, err := safe.Open(0)
	require.NoError(f, err)
	f.Cleanup(func() { x.Close() })
	f.Fuzz(func(t *testing.T, n, i, j int) {
		n = max(n, -n) & 0xff
		b, h := buffer[uint16](t, x, n), host[uint16](t, x, n)
		part, err := b.Slice(i, j)
		pinned, pinnedErr := h.Slice(i, j)
		if i < 0 || j < i || j > n {
			assert.ErrorIs(t, err, safe.ErrRange)
			assert.ErrorIs(t, pinnedErr, safe.ErrRange)
			return
		}
		require.NoError(t, err)
		require.NoError(t, pinnedErr)
		assert.Equal(t, j-i, part.Len())
		assert.Len(t, pinned.Data(), j-i)
		if j > i {
			assert.Equal(t, b.Raw()+driver.CUdeviceptr(2*i), part.Raw())
		}
		require.NoError(t, part.Fill(3))
		got, err := part.Download()
		require.NoError(t, err)
		for _, v := range got {
			assert.EqualValues(t, 3, v)
		}
	})
}
