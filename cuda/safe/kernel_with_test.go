//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What a program expects of a kernel, and blocks with too many threads. Runs on any driver.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func kernelWith(t testing.TB, x *safe.Context, name string, o safe.KernelOptions) (*safe.Kernel, error) {
	t.Helper()
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	closing(t, m)
	return m.KernelWith(name, o)
}

func TestKernelWith(t *testing.T) {
	x := open(t, 0)
	_, err := kernel(t, x, "saxpy").Parameters()
	tells := err == nil
	for _, test := range []struct {
		name, kernel string
		options      safe.KernelOptions
		says         string // "" for no error
		asks         bool   // needs a driver that reports the parameters
	}{
		{"nothing", "saxpy", safe.KernelOptions{}, "", false},
		{"all", "saxpy", safe.KernelOptions{Parameters: []int{4, 4, 8, 8}, MaxThreads: 1024}, "", false},
		{"no parameters", "nothing", safe.KernelOptions{Parameters: []int{}}, "", false},
		{"a struct", "point", safe.KernelOptions{Parameters: []int{24, 8}}, "", false},
		{"sizes", "saxpy", safe.KernelOptions{Parameters: []int{4, 8, 8, 16}}, "parameter 1 of saxpy has 4 bytes in the module, but 8 in KernelOptions.Parameters", true},
		{"the size of a struct", "point", safe.KernelOptions{Parameters: []int{20, 8}}, "parameter 0 of point has 24 bytes in the module, but 20 in KernelOptions.Parameters", true},
		{"size and count", "saxpy", safe.KernelOptions{Parameters: []int{4, 4, 4}}, "parameter 2 of saxpy has 8 bytes in the module, but 4 in", true},
		{"too few", "saxpy", safe.KernelOptions{Parameters: []int{4, 4, 8}}, "saxpy has 4 parameters in the module, but 3 in KernelOptions.Parameters", true},
		{"too many", "saxpy", safe.KernelOptions{Parameters: []int{4, 4, 8, 8, 4}}, "saxpy has 4 parameters in the module, but 5 in", true},
		{"none", "saxpy", safe.KernelOptions{Parameters: []int{}}, "saxpy has 4 parameters in the module, but 0 in", true},
		{"some of none", "nothing", safe.KernelOptions{Parameters: []int{4}}, "nothing has 0 parameters in the module, but 1 in", true},
		{"negative", "saxpy", safe.KernelOptions{MaxThreads: -1}, "saxpy: KernelOptions.MaxThreads is -1", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			k, err := kernelWith(t, x, test.kernel, test.options)
			if test.says == "" || test.asks && !tells {
				require.NoError(t, err)
				assert.Equal(t, test.kernel, k.Name())
				return
			}
			assert.Nil(t, k)
			assert.ErrorIs(t, err, safe.ErrInvalidArgument)
			assert.ErrorContains(t, err, test.says)
		})
	}
	_, err = kernelWith(t, x, "no such kernel", safe.KernelOptions{Parameters: []int{1}})
	assert.ErrorContains(t, err, "no such kernel")
}

// TestKernelWithOldDriver: a driver that does not tell the parameters cannot compare them.
func TestKernelWithOldDriver(t *testing.T) {
	needsSimulated(t)
	withDriver(t, "11.8", func(t *testing.T) {
		x := open(t, 0)
		k, err := kernelWith(t, x, "saxpy", safe.KernelOptions{Parameters: []int{1}, MaxThreads: 2})
		require.NoError(t, err)
		_, err = k.Parameters()
		require.ErrorIs(t, err, safe.ErrNotSupported)
		block := safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 3}}
		b := buffer[float32](t, x, 1)
		assert.ErrorIs(t, k.Launch(stream(t, x), block, safe.Val(int32(0)), safe.Val(float32(0)), b.Arg(), b.Arg()), safe.ErrInvalidArgument)
	})
}

// TestMaxThreads: everything that launches or records a launch refuses a block with more threads than the kernel allows.
func TestMaxThreads(t *testing.T) {
	x := open(t, 0)
	s, batch, g := stream(t, x), newBatch(t, x), newGraph(t, x)
	bounded, err := kernelWith(t, x, "nothing", safe.KernelOptions{MaxThreads: 256})
	require.NoError(t, err)
	wider, err := kernelWith(t, x, "limited", safe.KernelOptions{MaxThreads: 512})
	require.NoError(t, err)
	require.NoError(t, batch.Launch(bounded, one))
	node := addNode(t, g, safe.KernelNode(bounded, one))
	exec := executable(t, g)
	calls := map[string]func(*safe.Kernel, safe.LaunchConfig) error{
		"Kernel.Launch":   func(k *safe.Kernel, cfg safe.LaunchConfig) error { return k.Launch(s, cfg) },
		"Batch.Launch":    func(k *safe.Kernel, cfg safe.LaunchConfig) error { return batch.Launch(k, cfg) },
		"Batch.SetLaunch": func(k *safe.Kernel, cfg safe.LaunchConfig) error { return batch.SetLaunch(0, k, cfg) },
		"Graph.Add": func(k *safe.Kernel, cfg safe.LaunchConfig) error {
			_, err := g.Add(safe.KernelNode(k, cfg))
			return err
		},
		"Node.Set":      func(k *safe.Kernel, cfg safe.LaunchConfig) error { return node.Set(safe.KernelNode(k, cfg)) },
		"GraphExec.Set": func(k *safe.Kernel, cfg safe.LaunchConfig) error { return exec.Set(node, safe.KernelNode(k, cfg)) },
	}
	for _, test := range []struct {
		name   string
		kernel *safe.Kernel
		block  safe.Dim
		says   string // "" for no error
	}{
		{"at", bounded, safe.Dim{X: 256}, ""},
		{"above", bounded, safe.Dim{X: 257}, "257 threads per block, the maximum of nothing is 256"},
		{"at, in 2 dimensions", bounded, safe.Dim{X: 16, Y: 16}, ""},
		{"at, in 3 dimensions", bounded, safe.Dim{X: 16, Y: 8, Z: 2}, ""},
		{"above, in Y", bounded, safe.Dim{X: 16, Y: 17}, "272 threads per block, the maximum of nothing is 256"},
		{"above, in Z", bounded, safe.Dim{X: 8, Y: 8, Z: 5}, "320 threads per block, the maximum of nothing is 256"},
		{"above, without Y", bounded, safe.Dim{X: 5, Z: 60}, "300 threads per block, the maximum of nothing is 256"},
		{"more than 32 bits", bounded, safe.Dim{X: 1 << 31, Y: 2}, "4294967296 threads per block, the maximum of nothing is 256"},
		{"what the driver tells", wider, safe.Dim{X: 65}, "65 threads per block, the maximum of limited is 64, by its __launch_bounds__"},
		{"the device's maximum", kernel(t, x, "nothing"), safe.Dim{X: 1025}, "1025 threads per block, the maximum of nothing is 1024"},
	} {
		for name, call := range calls {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				err := call(test.kernel, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: test.block})
				if test.says == "" {
					require.NoError(t, err)
					return
				}
				assert.ErrorIs(t, err, safe.ErrInvalidArgument)
				assert.ErrorContains(t, err, test.says)
				assert.ErrorContains(t, err, name)
			})
		}
	}
	require.NoError(t, s.Synchronize(), "nothing is broken")
}
