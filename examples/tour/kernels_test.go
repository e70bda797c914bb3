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
