//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Memory and semaphores of other APIs. In the simulated driver both are files: memory is
// what the file contains, and a semaphore the number at its beginning. On a GPU, where they
// would come from Vulkan, only the refusals are tested.

package safe_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	if onGPU {
		return
	}
	operations = append(operations,
		operation{"ImportExternalMemory", func(w *world) error {
			return withFile(func(f *os.File) error {
				m, err := safe.ImportExternalMemory(w.x, f, 4096, safe.ExternalMemoryOptions{})
				_, err = also(w, m, err)
				return err
			})
		}},
		operation{"NewExternalBuffer", func(w *world) error {
			return withFile(func(f *os.File) error {
				m, err := safe.ImportExternalMemory(w.x, f, 4096, safe.ExternalMemoryOptions{})
				if _, err = also(w, m, err); err != nil {
					return err
				}
				b, err := safe.NewExternalBuffer[int32](m, 0, 64)
				_, err = also(w, b, err)
				return err
			})
		}},
		operation{"ImportExternalSemaphore", func(w *world) error {
			return withSemaphore(w, func(*safe.ExternalSemaphore) error { return nil })
		}},
		operation{"Stream.SignalExternal", func(w *world) error {
			return withSemaphore(w, func(e *safe.ExternalSemaphore) error { return w.s.SignalExternal(safe.SemaphoreOp{Semaphore: e}) })
		}},
		operation{"Stream.WaitExternal", func(w *world) error {
			return withSemaphore(w, func(e *safe.ExternalSemaphore) error {
				if err := w.s.SignalExternal(safe.SemaphoreOp{Semaphore: e}); err != nil {
					return err // or the wait would last for ever
				}
				return w.s.WaitExternal(safe.SemaphoreOp{Semaphore: e})
			})
		}},
	)
	within["NewExternalBuffer"] = []string{"ImportExternalMemory"}
	within["Stream.SignalExternal"] = []string{"ImportExternalSemaphore"}
	within["Stream.WaitExternal"] = []string{"ImportExternalSemaphore", "Stream.SignalExternal"}
}

// withFile calls do with a file of 8192 bytes that are 0.
func withFile(do func(*os.File) error) error {
	f, err := os.CreateTemp("", "external")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := f.Truncate(8192); err != nil {
		return err
	}
	return do(f)
}

func withSemaphore(w *world, do func(*safe.ExternalSemaphore) error) error {
	return withFile(func(f *os.File) error {
		e, err := safe.ImportExternalSemaphore(w.x, f, safe.ExternalSemaphoreOptions{})
		if _, err = also(w, e, err); err != nil {
			return err
		}
		return do(e)
	})
}

// exported stands for memory or a semaphore that another API has exported.
func exported(t *testing.T) *os.File {
	t.Helper()
	needsSimulated(t)
	needsFiles(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "exported"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, f.Truncate(8192))
	return f
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// TestForeignArgument: the error names what a kernel of another device gets.
func TestForeignArgument(t *testing.T) {
	f, x, y := exported(t), open(t, 0), second(t)
	m, err := safe.ImportExternalMemory(x, f, 8192, safe.ExternalMemoryOptions{Dedicated: true})
	require.NoError(t, err)
	closing(t, m)
	of, err := safe.NewExternalBuffer[uint32](m, 0, 1000)
	require.NoError(t, err)
	closing(t, of)
	texture, err := safe.NewLinearTexture(buffer[float32](t, x, 64), safe.TextureOptions{})
	require.NoError(t, err)
	closing(t, texture)
	held, err := safe.NewResource(x, func() {})
	require.NoError(t, err)
	closing(t, held)
	k, s := kernel(t, y, "nothing"), stream(t, y)
	for name, c := range map[string]struct {
		use  safe.Arg
		says string
	}{
		"external buffer": {of.Arg(), "is memory of device 0"},
		"texture":         {texture.Arg(), "is a texture or surface of device 0"},
		"resource":        {held.Arg(), "is a resource of device 0"},
	} {
		cfg := one
		cfg.Uses = []safe.Arg{c.use}
		err := k.Launch(s, cfg)
		assert.ErrorIs(t, err, safe.ErrContextMismatch, name)
		assert.ErrorContains(t, err, c.says, name)
	}
}

// TestExternalMemory: kernels write what the other API reads, and the other way round.
func TestExternalMemory(t *testing.T) {
	startClean(t) // memory of earlier tests would be counted
	f, x := exported(t), open(t, 0)
	before := descriptors(t)
	m, err := safe.ImportExternalMemory(x, f, 8192, safe.ExternalMemoryOptions{Dedicated: true})
	require.NoError(t, err)
	assert.EqualValues(t, 8192, m.Size())
	assert.NotZero(t, m.Raw())
	assert.Contains(t, fmt.Sprint(m), "ExternalMemory")
	b, err := safe.NewExternalBuffer[uint32](m, 4000, 1000)
	require.NoError(t, err)
	require.NoError(t, m.Close(), "the buffer keeps it alive")
	assert.Zero(t, m.Raw())

	_, err = f.WriteAt([]byte{1, 0, 0, 0}, 4000)
	require.NoError(t, err, "the file is the caller's")
	got := make([]uint32, 1000)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 1, got[0])
	s := stream(t, x)
	require.NoError(t, b.FillAsync(s, 7))
	require.NoError(t, s.Synchronize())
	word := make([]byte, 4)
	_, err = f.ReadAt(word, 4000+999*4)
	require.NoError(t, err)
	assert.EqualValues(t, 7, binary.NativeEndian.Uint32(word))
	require.NoError(t, b.FillAsync(s, 8))
	require.NoError(t, b.Close())
	settle(t)
	assert.Zero(t, simulated.Live("external"))
	assert.Equal(t, before, descriptors(t))
}

func TestExternalMemoryRefuses(t *testing.T) {
	needsFiles(t)
	startClean(t) // memory of earlier tests would be counted
	x := open(t, 0)
	before := descriptors(t)
	closed, err := os.Create(filepath.Join(t.TempDir(), "closed"))
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	r, w, err := os.Pipe() // which is neither memory nor a semaphore
	require.NoError(t, err)
	_, err = safe.ImportExternalMemory(x, r, 0, safe.ExternalMemoryOptions{})
	assert.ErrorIs(t, err, safe.ErrRange)
	for _, f := range []*os.File{nil, closed, r} {
		_, err = safe.ImportExternalMemory(x, f, 4096, safe.ExternalMemoryOptions{})
		assert.Error(t, err)
		_, err = safe.ImportExternalSemaphore(x, f, safe.ExternalSemaphoreOptions{})
		assert.Error(t, err)
	}
	_, err = safe.ImportExternalMemory(nil, r, 4096, safe.ExternalMemoryOptions{})
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = safe.NewExternalBuffer[int32](nil, 0, 1)
	assert.ErrorIs(t, err, safe.ErrClosed)
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
	if !onGPU {
		assert.Equal(t, before, descriptors(t))
	}

	m, err := safe.ImportExternalMemory(x, exported(t), 8192, safe.ExternalMemoryOptions{})
	require.NoError(t, err)
	closing(t, m)
	for _, c := range []struct {
		offset uint64
		n      int
	}{{8192, 1}, {8189, 1}, {0, 2049}, {1 << 63, 1}, {0, -1}, {^uint64(0), 1}} {
		_, err = safe.NewExternalBuffer[int32](m, c.offset, c.n)
		assert.ErrorIs(t, err, safe.ErrRange, "%+v", c)
	}
	empty, err := safe.NewExternalBuffer[int32](m, 8192, 0)
	require.NoError(t, err)
	require.NoError(t, empty.Close())
	_, err = safe.NewExternalBuffer[*int](m, 0, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
}

// semaphore imports a semaphore, and returns functions of the other API that has it.
func semaphore(t *testing.T, x *safe.Context, o safe.ExternalSemaphoreOptions) (e *safe.ExternalSemaphore, set func(uint64), get func() uint64) {
	t.Helper()
	f := exported(t)
	e, err := safe.ImportExternalSemaphore(x, f, o)
	require.NoError(t, err)
	closing(t, e)
	word := make([]byte, 8)
	set = func(v uint64) {
		binary.NativeEndian.PutUint64(word, v)
		_, err := f.WriteAt(word, 0)
		require.NoError(t, err)
	}
	get = func() uint64 {
		_, err := f.ReadAt(word, 0)
		require.NoError(t, err)
		return binary.NativeEndian.Uint64(word)
	}
	return e, set, get
}

// TestExternalSemaphore: a stream waits for signals of the other API, and signals it.
func TestExternalSemaphore(t *testing.T) {
	x := open(t, 0)
	timeline, set, get := semaphore(t, x, safe.ExternalSemaphoreOptions{Timeline: true})
	once, setOnce, getOnce := semaphore(t, x, safe.ExternalSemaphoreOptions{})
	s, h := stream(t, x), host[uint32](t, x, 1)
	assert.Contains(t, fmt.Sprint(once), "ExternalSemaphore")
	h.Data()[0] = 0
	require.NoError(t, s.WaitExternal())
	require.NoError(t, s.WaitExternal(safe.SemaphoreOp{Semaphore: timeline, Value: 2}, safe.SemaphoreOp{Semaphore: once}))
	require.NoError(t, h.FillAsync(s, 1))
	require.NoError(t, s.SignalExternal(safe.SemaphoreOp{Semaphore: timeline, Value: 5}))
	set(1)
	setOnce(1)
	done, err := s.Query()
	require.NoError(t, err)
	assert.False(t, done, "1 is too little")
	set(3)
	require.NoError(t, s.Synchronize())
	assert.EqualValues(t, 1, h.Data()[0])
	assert.EqualValues(t, 5, get())
	assert.Zero(t, getOnce(), "the wait has reset it")

	other := stream(t, x)
	require.NoError(t, other.WaitExternal(safe.SemaphoreOp{Semaphore: once}))
	require.NoError(t, s.WaitExternal(safe.SemaphoreOp{Semaphore: timeline, Value: 5}))
	closed := make(chan error)
	go func() { closed <- once.Close() }() // which waits for the work
	setOnce(1)
	require.NoError(t, <-closed)
	require.NoError(t, other.Synchronize())
	assert.ErrorIs(t, s.WaitExternal(safe.SemaphoreOp{Semaphore: once}), safe.ErrClosed)
	require.NoError(t, s.Synchronize())
}

func TestExternalSemaphoreRefuses(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	assert.ErrorIs(t, s.SignalExternal(safe.SemaphoreOp{}), safe.ErrClosed)
	assert.ErrorIs(t, s.WaitExternal(safe.SemaphoreOp{Semaphore: new(safe.ExternalSemaphore)}), safe.ErrClosed)
	_, err := newGraph(t, x).Add(safe.SignalExternalNode())
	assert.ErrorIs(t, err, safe.ErrRange)
	_, err = newGraph(t, x).Add(safe.WaitExternalNode(safe.SemaphoreOp{}))
	assert.ErrorIs(t, err, safe.ErrClosed)
	once, _, _ := semaphore(t, x, safe.ExternalSemaphoreOptions{})
	good := safe.SemaphoreOp{Semaphore: once}
	err = s.SignalExternal(good, safe.SemaphoreOp{Semaphore: once, Value: 1})
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorContains(t, err, "operation 1")
	own := created(t, x, safe.ContextOptions{})
	assert.ErrorIs(t, stream(t, own).SignalExternal(good), safe.ErrContextMismatch)
	assert.ErrorIs(t, (*safe.Stream)(nil).SignalExternal(good), safe.ErrClosed)
}

// TestExternalSemaphoreNodes: graphs wait for semaphores and signal them, captured or by
// hand, and retain them.
func TestExternalSemaphoreNodes(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	e, set, get := semaphore(t, x, safe.ExternalSemaphoreOptions{Timeline: true})
	op := func(v uint64) safe.SemaphoreOp { return safe.SemaphoreOp{Semaphore: e, Value: v} }
	byHand := newGraph(t, x)
	wait := addNode(t, byHand, safe.WaitExternalNode(op(1)))
	signal := addNode(t, byHand, safe.SignalExternalNode(op(2)), wait)
	assert.EqualValues(t, driver.CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, wait.Type())
	captured, err := s.Capture(func() error { return errors.Join(s.WaitExternal(op(1)), s.SignalExternal(op(2))) })
	require.NoError(t, err)
	closing(t, captured)
	for _, g := range []*safe.Graph{byHand, captured} {
		set(0)
		require.NoError(t, executable(t, g).Launch(s))
		done, err := s.Query()
		require.NoError(t, err)
		assert.False(t, done)
		set(1)
		require.NoError(t, s.Synchronize())
		assert.EqualValues(t, 2, get())
	}
	x1 := executable(t, byHand)
	require.NoError(t, x1.Set(wait, safe.WaitExternalNode(op(2))))
	require.NoError(t, x1.Set(signal, safe.SignalExternalNode(op(3))))
	assert.ErrorIs(t, x1.Set(signal, safe.SignalExternalNode(op(3), op(4))), driver.CUDA_ERROR_INVALID_VALUE)
	launch(t, x1, s)
	assert.EqualValues(t, 3, get())
	require.NoError(t, signal.Set(safe.SignalExternalNode(op(4))))
	require.NoError(t, wait.Set(safe.WaitExternalNode(op(3))))
	require.NoError(t, e.Close(), "the graph retains it")
	launch(t, executable(t, byHand), s)
	assert.EqualValues(t, 4, get())
}
