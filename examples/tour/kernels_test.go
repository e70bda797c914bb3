//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	_ "embed"
	"testing"

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
// memory of float32 only: a Buffer or Pinned of it, also managed and pooled memory.
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
