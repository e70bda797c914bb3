//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sums launches a kernel and reads its result. It needs no wait in between, because
// Download waits for the kernel.
func sums(s *safe.Stream, add *safe.Kernel, a, b, sum *safe.Buffer[float32]) ([]float32, error) {
	err := add.Launch(s, safe.Threads(a.Len()), a.Arg(), b.Arg(), sum.Arg(), safe.Val(uint32(a.Len())))
	if err != nil {
		return nil, err
	}
	return sum.Download()
}

// A particle is a struct of C's: fields in the same order, and no Go pointers.
type particle struct {
	X, Y, Z float32
	Kind    uint32
}

// upload copies in pieces through two pinned buffers: the host fills one while the
// device copies the other.
func upload(ctx context.Context, s *safe.Stream, to *safe.Buffer[float32], pinned [2]*safe.Pinned[float32], fill func(piece []float32, at int)) error {
	var taken [2]*safe.Future[struct{}]
	n := pinned[0].Len()
	for i := 0; i*n < to.Len(); i++ {
		use := i % 2
		if taken[use] != nil { // the copy that used this buffer last
			if _, err := taken[use].Wait(ctx); err != nil {
				return err
			}
		}
		at, end := i*n, min((i+1)*n, to.Len())
		piece, err := pinned[use].Slice(0, end-at)
		if err != nil {
			return err
		}
		there, err := to.Slice(at, end)
		if err != nil {
			return err
		}
		fill(piece.Data(), at)
		if err := there.CopyFromHostAsync(s, piece); err != nil {
			return err
		}
		taken[use] = s.Completion()
	}
	return s.Wait(ctx)
}

// send copies a Go slice asynchronously, without another copy by the host.
func send(x *safe.Context, s *safe.Stream, to *safe.Buffer[float32], data []float32) error {
	pinned, err := safe.RegisterPinned(x, data)
	if err != nil {
		return err
	}
	defer pinned.Close() // waits for the copy
	return to.CopyFromHostAsync(s, pinned)
}

// loadWeights copies the values of a file to the device. It maps the file, so that the host copies
// nothing: MAP_SHARED and ReadOnly, as CUDA registers no private mapping of a file.
func loadWeights(x *safe.Context, s *safe.Stream, to *safe.Buffer[float32], file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := syscall.Mmap(int(f.Fd()), 0, int(to.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	defer syscall.Munmap(m)
	weights := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m))), to.Len())
	pinned, err := safe.RegisterPinnedWith(x, weights, safe.PinnedOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer pinned.Close() // waits for the copy, before the mapping ends
	return to.CopyFromHostAsync(s, pinned)
}

// doubled doubles values in managed memory, which has one address for host and
// device.
func doubled(s *safe.Stream, add *safe.Kernel, managed *safe.Buffer[float32]) error {
	for i := range managed.Data() {
		managed.Data()[i] = float32(i)
	}
	n := managed.Len()
	if err := add.Launch(s, safe.Threads(n), managed.Arg(), managed.Arg(), managed.Arg(), safe.Val(uint32(n))); err != nil {
		return err
	}
	return s.Synchronize() // before the host reads the values
}

// collected has the collector run until there is a report.
func collected(reports <-chan error) error {
	for {
		runtime.GC()
		select {
		case err := <-reports:
			return err
		case <-time.After(time.Millisecond):
		}
	}
}

func TestMemory(t *testing.T) {
	const n = 1000
	x := open(t)
	s := newStream(t, x)
	add, b := kernel(t, x, "add"), newBuffer(t, x, n)
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}

	t.Run("buffers", func(t *testing.T) {
		a, sum := newBuffer(t, x, n), newBuffer(t, x, n)
		require.NoError(t, a.CopyFromHost(ones))
		got, err := sums(s, add, a, a, sum)
		require.NoError(t, err)
		assert.EqualValues(t, 2, got[n-1])
	})
	t.Run("structs", func(t *testing.T) {
		particles, err := safe.NewBuffer[particle](x, n)
		require.NoError(t, err)
		closing(t, particles)
		require.NoError(t, particles.Fill(particle{}))
		c, err := safe.Cast[float32](particles)
		require.NoError(t, err)
		assert.Equal(t, 4*n, c.Len())
	})
	t.Run("pinned", func(t *testing.T) {
		pinned := [2]*safe.Pinned[float32]{newHostBuffer(t, x, 300), newHostBuffer(t, x, 300)}
		require.NoError(t, upload(context.Background(), s, b, pinned, func(piece []float32, at int) {
			for i := range piece {
				piece[i] = float32(at + i)
			}
		}))
		got := values(t, b)
		for i := range got {
			require.EqualValues(t, i, got[i])
		}
	})
	t.Run("registered", func(t *testing.T) {
		require.NoError(t, send(x, s, b, ones))
		assert.EqualValues(t, 1, values(t, b)[n-1])
	})
	t.Run("weights", func(t *testing.T) {
		var content []byte
		for i := range n {
			content = binary.NativeEndian.AppendUint32(content, math.Float32bits(float32(3*i)))
		}
		file := filepath.Join(t.TempDir(), "weights")
		require.NoError(t, os.WriteFile(file, content, 0o666))
		require.NoError(t, loadWeights(x, s, b, file))
		got := values(t, b)
		for i := range got {
			require.EqualValues(t, 3*i, got[i])
		}
	})
	t.Run("managed", func(t *testing.T) {
		managed, err := safe.NewManagedBuffer[float32](x, n)
		if errors.Is(err, safe.ErrNotSupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		closing(t, managed)
		require.NoError(t, doubled(s, add, managed))
		assert.EqualValues(t, 2*(n-1), managed.Data()[n-1])
	})
	t.Run("leaks", func(t *testing.T) {
		reports := make(chan error, 1)
		safe.OnError(func(err error) { reports <- err })
		defer safe.OnError(nil)
		safe.TrackLeaks(true)
		defer safe.TrackLeaks(false)
		func() {
			_, err := safe.NewBuffer[float32](x, n) // and no Close
			require.NoError(t, err)
		}()
		var leak *safe.LeakError
		require.ErrorAs(t, collected(reports), &leak)
		assert.Contains(t, leak.Error(), "cuda: a block of memory was dropped while it was open; it was made here:\n")
		assert.Contains(t, leak.Stack, "memory_test.go")
	})
	t.Run("errors", func(t *testing.T) {
		assert.EqualError(t, b.CopyFromHost(make([]float32, n+1)), "cuda: Buffer.CopyFromHost: out of range: 1001 values do not fit into 1000")
		_, err := safe.NewBuffer[bool](x, 1)
		assert.EqualError(t, err, "cuda: NewBuffer: invalid argument: type bool contains bools, which a device can set to values other than true and false: use uint8")
		_, err = safe.NewBuffer[struct{ name string }](x, 1)
		assert.EqualError(t, err, "cuda: NewBuffer: invalid argument: type struct { name string } contains Go pointers, which a device cannot follow: use an index or a device address for its name")
		_, err = safe.NewBuffer[float32](x, -1)
		assert.EqualError(t, err, "cuda: NewBuffer: out of range: -1 values of float32, but the number must not be negative")
		err = b.CopyFrom(b)
		assert.ErrorIs(t, err, safe.ErrOverlap)
		assert.True(t, strings.HasPrefix(err.Error(), "cuda: Buffer.CopyFrom: source and destination overlap: 4000 bytes from "), err)
		_, err = safe.NewBuffer[byte](x, 1<<50)
		assert.Regexp(t, `^cuda: NewBuffer: CUDA_ERROR_OUT_OF_MEMORY: not enough memory or other resources: 1125899906842624 bytes requested, \d+ of \d+ bytes free on device 0$`, err.Error())
		closed, err := safe.NewBuffer[float32](x, 1)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		assert.EqualError(t, closed.Fill(0), "cuda: Buffer.Fill: already closed, or never opened")
	})
}
