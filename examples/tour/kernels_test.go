//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"cmp"
	_ "embed"
	"slices"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ptx is part of the program, which runs without the file on disk.
//
//go:embed testdata/kernels.ptx
var ptx []byte

// loadAdd loads a module and looks up one of its kernels. The kernel keeps the
// module from being garbage collected, but Close of the module ends both.
func loadAdd(x *safe.Context) (*safe.Module, *safe.Kernel, error) {
	m, err := safe.Load(x, ptx)
	if err != nil {
		return nil, nil, err // Error.Detail holds the log of the compiler
	}
	k, err := m.Kernel("add")
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, k, nil
}

// twice returns twice the values. It creates what it needs, enqueues the work and downloads the result, and then checks
// whether anything has failed.
func twice(x *safe.Context, add *safe.Kernel, in []float32) ([]float32, error) {
	s, err1 := safe.NewStream(x)
	values, err2 := safe.Upload(x, in)
	sum, err3 := safe.NewBuffer[float32](x, len(in))
	defer s.Close()
	defer values.Close()
	defer sum.Close()
	err4 := add.Launch(s, safe.Threads(len(in)), values.Arg(), values.Arg(), sum.Arg(), safe.Val(uint32(len(in))))
	out, err5 := sum.Download()
	return out, cmp.Or(err1, err2, err3, err4, err5)
}

// enqueueTwice enqueues work that doubles the values of host, and then calls done, even if an earlier call has failed.
func enqueueTwice(s *safe.Stream, add *safe.Kernel, values *safe.Buffer[float32], host *safe.Pinned[float32], done func([]float32)) error {
	err1 := values.CopyFromHostAsync(s, host)
	err2 := add.Launch(s, safe.Threads(host.Len()), values.Arg(), values.Arg(), values.Arg(), safe.Val(uint32(host.Len())))
	err3 := values.CopyToHostAsync(s, host)
	_, err4 := s.LaunchHostFunc(func() { done(host.Data()) })
	return cmp.Or(err1, err2, err3, err4)
}

// launchAdd launches a kernel for all values, with the block size that keeps the
// multiprocessors busiest.
func launchAdd(s *safe.Stream, add *safe.Kernel, a, b, sum *safe.Buffer[float32]) error {
	_, threads, err := add.MaxPotentialBlockSize(safe.BlockSizeOptions{})
	if err != nil {
		return err
	}
	n := sum.Len()
	config := safe.LaunchConfig{Grid: safe.Blocks(n, threads), Block: safe.Dim{X: uint32(threads)}}
	return add.Launch(s, config, a.Arg(), b.Arg(), sum.Arg(), safe.Val(uint32(n)))
}

// addKernel is add(const float *a, const float *b, float *sum, unsigned n). Its Launch takes
// memory of float32 only: a Buffer or Pinned, including managed and pooled memory.
type addKernel struct{ *safe.Kernel }

func newAddKernel(m *safe.Module) (addKernel, error) {
	k, err := m.KernelWith("add", safe.KernelOptions{Parameters: []int{8, 8, 8, 4}})
	return addKernel{k}, err
}

func (k addKernel) Launch(s *safe.Stream, c safe.LaunchConfig, a, b, sum safe.Pointer[float32], n uint32) error {
	return k.Kernel.Launch(s, c, safe.PointerArg(a), safe.PointerArg(b), safe.PointerArg(sum), safe.Val(n))
}

func TestTypedKernel(t *testing.T) {
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	require.NoError(t, b.Fill(2))
	m, _, err := loadAdd(x)
	require.NoError(t, err)
	closing(t, m)
	add, err := newAddKernel(m)
	require.NoError(t, err)
	require.NoError(t, add.Launch(s, safe.Threads(b.Len()), b, b, b, uint32(b.Len())))
	assert.EqualValues(t, 4, values(t, b)[999])
	_, err = m.KernelWith("add", safe.KernelOptions{Parameters: []int{8, 8, 4}})
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
}

func TestKernels(t *testing.T) {
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	require.NoError(t, b.Fill(2))
	m, add, err := loadAdd(x)
	require.NoError(t, err)
	closing(t, m)
	require.NoError(t, launchAdd(s, add, b, b, b))
	assert.EqualValues(t, 4, values(t, b)[999])

	require.NoError(t, m.Close())
	assert.ErrorIs(t, launchAdd(s, add, b, b, b), safe.ErrClosed)
}

func TestTwice(t *testing.T) {
	x := open(t)
	add := kernel(t, x, "add")
	got, err := twice(x, add, []float32{1, 2, 3})
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 4, 6}, got)
	_, err = twice(nil, add, []float32{1})
	assert.EqualError(t, err, "cuda: NewStream: already closed, or never opened")

	host, err := safe.NewPinned[float32](x, 2)
	require.NoError(t, err)
	closing(t, host)
	copy(host.Data(), []float32{4, 5})
	s, values := newStream(t, x), newBuffer(t, x, 2)
	require.NoError(t, enqueueTwice(s, add, values, host, func(twice []float32) { got = slices.Clone(twice) }))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, []float32{8, 10}, got)
}

// TestTwiceFails: whichever call of the driver fails, twice returns its error, and not one of those that follow from it.
func TestTwiceFails(t *testing.T) {
	needsSimulated(t)
	require.NoError(t, left()) // else the failure may meet the rest of another test
	x := open(t)
	add := kernel(t, x, "add")
	for n := 1; ; n++ {
		control.Fail("", n, uint32(driver.CUDA_ERROR_UNKNOWN))
		_, err := twice(x, add, []float32{1, 2, 3})
		failed := control.Failed()
		control.Reset()
		if err != nil {
			assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN, failed)
		}
		if failed == "" {
			return
		}
	}
}
