//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Occupancy queries. Runs on any driver.

package safe_test

import (
	"math"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMaxPotentialBlockSize(t *testing.T) {
	x := open(t, 0)
	p, err := x.Device().Properties()
	require.NoError(t, err)
	for _, name := range []string{"fill", "limited"} {
		k := kernel(t, x, name)
		most, err := k.Attribute(driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
		require.NoError(t, err)
		for _, limit := range []int{0, 96, 1} {
			blocks, threads, err := k.MaxPotentialBlockSize(safe.BlockSizeOptions{Limit: limit})
			require.NoError(t, err)
			assert.LessOrEqual(t, threads, most)
			if limit > 0 {
				assert.LessOrEqual(t, threads, limit)
			}
			assert.Positive(t, threads)
			assert.Zero(t, blocks%p.Multiprocessors)
			n, err := k.MaxBlocksPerMultiprocessor(threads, 0)
			require.NoError(t, err)
			assert.Equal(t, blocks, n*p.Multiprocessors)

			var asked []int
			blocks2, threads2, err := k.MaxPotentialBlockSize(safe.BlockSizeOptions{Limit: limit, SharedBytes: 1 << 40, SharedFor: func(threads int) uint64 {
				asked = append(asked, threads)
				return 0
			}})
			require.NoError(t, err)
			assert.Equal(t, blocks*threads, blocks2*threads2, "as busy as what the driver found")
			assert.NotEmpty(t, asked)
		}
	}
	k := kernel(t, x, "fill")
	_, small, err := k.MaxPotentialBlockSize(safe.BlockSizeOptions{Limit: 300, SharedFor: func(threads int) uint64 {
		if threads > 256 {
			return 48 << 10
		}
		return 0
	}})
	require.NoError(t, err)
	assert.LessOrEqual(t, small, 256)
	_, _, err = k.MaxPotentialBlockSize(safe.BlockSizeOptions{SharedBytes: 16 << 10})
	require.NoError(t, err)
	for _, limit := range []int{-1, math.MaxInt} {
		_, _, err = k.MaxPotentialBlockSize(safe.BlockSizeOptions{Limit: limit})
		assert.ErrorIs(t, err, safe.ErrRange)
	}
}

func TestMaxCooperativeBlocks(t *testing.T) {
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	n, err := k.MaxCooperativeBlocks(256, 0)
	require.NoError(t, err)
	require.Positive(t, n)
	s := stream(t, x)
	cfg := safe.LaunchConfig{Grid: safe.Dim{X: uint32(n)}, Block: safe.Dim{X: 256}, Cooperative: true}
	require.NoError(t, k.Launch(s, cfg))
	cfg.Grid.X++
	assert.ErrorIs(t, k.Launch(s, cfg), driver.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
	require.NoError(t, s.Synchronize())
	_, err = k.MaxCooperativeBlocks(math.MaxInt, 0)
	assert.ErrorIs(t, err, safe.ErrRange)
}

func TestClusters(t *testing.T) {
	x := open(t, 0)
	if n, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH); err != nil || n == 0 {
		t.Skip("the device has no clusters")
	}
	k := kernel(t, x, "nothing")
	cfg := safe.LaunchConfig{Grid: safe.Dim{X: 64}, Block: safe.Dim{X: 128}}
	size, err := k.MaxPotentialClusterSize(cfg)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, size, 1)
	_, err = k.MaxActiveClusters(cfg)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	cfg.Cluster.X = 2
	pairs, err := k.MaxActiveClusters(cfg)
	require.NoError(t, err)
	cfg.Cluster.X = 4
	fours, err := k.MaxActiveClusters(cfg)
	require.NoError(t, err)
	assert.Positive(t, fours)
	assert.GreaterOrEqual(t, pairs, fours)
	again, err := k.MaxPotentialClusterSize(cfg)
	require.NoError(t, err)
	assert.Equal(t, size, again, "whatever Cluster is")
}

func TestOccupancyClosed(t *testing.T) {
	x := open(t, 0)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	k, err := m.Kernel("nothing")
	require.NoError(t, err)
	require.NoError(t, m.Close())
	calls := func(m *safe.Module, k *safe.Kernel) map[string]func() error {
		return map[string]func() error{
			"Kernel.MaxPotentialBlockSize": func() error {
				_, _, err := k.MaxPotentialBlockSize(safe.BlockSizeOptions{})
				return err
			},
			"Kernel.MaxCooperativeBlocks":    func() error { _, err := k.MaxCooperativeBlocks(1, 0); return err },
			"Kernel.MaxPotentialClusterSize": func() error { _, err := k.MaxPotentialClusterSize(one); return err },
			"Kernel.MaxActiveClusters": func() error {
				_, err := k.MaxActiveClusters(safe.LaunchConfig{Cluster: safe.Dim{X: 1}})
				return err
			},
			"Module.Kernels": func() error { _, err := m.Kernels(); return err },
		}
	}
	refusedAll(t, calls(m, k))
	refusedAll(t, calls(nil, nil))
	refusedAll(t, calls(&safe.Module{}, &safe.Kernel{}))
}
