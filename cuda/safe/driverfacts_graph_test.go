//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Which nodes CUDA accepts that free memory of graphs. Needs any driver, simulated or a GPU's.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFactFreeNodes: any graph may have a node that frees the memory, once, but not the graph that allocates it if another
// has. A launch of the second one would return CUDA_ERROR_INVALID_VALUE, and crash while a profiler records.
func TestFactFreeNodes(t *testing.T) {
	w := newFacts(t)
	require.NoError(t, w.x.WithCurrent(func() error {
		var allocates driver.CUgraph
		var executables [3]driver.CUgraphExec
		require.NoError(t, driver.CuGraphCreate(&allocates, 0))
		p := driver.CUDA_MEM_ALLOC_NODE_PARAMS{Bytesize: factSize}
		p.PoolProps.AllocType = driver.CU_MEM_ALLOCATION_TYPE_PINNED
		p.PoolProps.Location.Type = driver.CU_MEM_LOCATION_TYPE_DEVICE
		var n driver.CUgraphNode
		require.NoError(t, driver.CuGraphAddMemAllocNode(&n, allocates, nil, 0, &p))
		require.NoError(t, driver.CuGraphInstantiateWithFlags(&executables[0], allocates, 0))
		graphs := []driver.CUgraph{allocates}
		for i := range 2 {
			var frees driver.CUgraph
			require.NoError(t, driver.CuGraphCreate(&frees, 0))
			graphs = append(graphs, frees)
			assert.NoError(t, driver.CuGraphAddMemFreeNode(&n, frees, nil, 0, p.Dptr))
			assert.Equal(t, driver.CUDA_ERROR_INVALID_VALUE, driver.CuGraphAddMemFreeNode(&n, frees, nil, 0, p.Dptr), "again")
			assert.Equal(t, driver.CUDA_ERROR_INVALID_VALUE, driver.CuGraphAddMemFreeNode(&n, allocates, nil, 0, p.Dptr))
			require.NoError(t, driver.CuGraphInstantiateWithFlags(&executables[1+i], frees, 0))
		}
		var captured driver.CUgraph
		require.NoError(t, driver.CuStreamBeginCapture(w.s, relaxedMode))
		assert.NoError(t, driver.CuMemFreeAsync(p.Dptr, w.s))
		require.NoError(t, driver.CuStreamEndCapture(w.s, &captured))

		assert.NoError(t, driver.CuGraphLaunch(executables[0], w.s))
		assert.NoError(t, driver.CuGraphLaunch(executables[1], w.s))
		require.NoError(t, driver.CuStreamSynchronize(w.s))
		for _, e := range executables {
			assert.NoError(t, driver.CuGraphExecDestroy(e))
		}
		for _, g := range append(graphs, captured) {
			assert.NoError(t, driver.CuGraphDestroy(g))
		}
		return nil
	}))
}

// TestFactBodyAfterFree: once the graph has a node that frees its memory, no copy of the memory is captured to a body that
// runs before, but a memset and a kernel are.
func TestFactBodyAfterFree(t *testing.T) {
	needs(t, "cuGraphConditionalHandleCreate")
	x := open(t, 0)
	n := []safe.Arg{safe.Val(uint32(10)), safe.Val(float32(1))}
	s, side, y, saxpy := stream(t, x), stream(t, x), ones(t, x, 10), kernel(t, x, "saxpy")
	for _, tt := range []struct {
		name string
		work func(b *safe.Buffer[float32]) error
		want error
	}{
		{"copy from", func(b *safe.Buffer[float32]) error { return y.CopyFromAsync(side, b) }, driver.CUDA_ERROR_INVALID_VALUE},
		{"copy to", func(b *safe.Buffer[float32]) error { return b.CopyFromAsync(side, y) }, driver.CUDA_ERROR_INVALID_VALUE},
		{"memset", func(b *safe.Buffer[float32]) error { return b.FillAsync(side, 7) }, nil},
		{"kernel", func(b *safe.Buffer[float32]) error {
			return saxpy.Launch(side, perValue(10), append(n, b.Arg(), y.Arg())...)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b *safe.Buffer[float32]
			var before, after *safe.Graph
			to := func(body *safe.Graph) error {
				return side.CaptureTo(body, safe.CaptureToOptions{}, func() error { return tt.work(b) })
			}
			g, err := s.Capture(func() (err error) {
				b, err = safe.NewBufferAsync[float32](s, 10)
				require.NoError(t, err)
				require.NoError(t, b.FillAsync(s, 3))
				for _, body := range []**safe.Graph{&before, &after} {
					c, err := s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
					require.NoError(t, err)
					*body, err = s.AddIf(c)
					require.NoError(t, err)
				}
				require.NoError(t, to(before))
				return b.FreeAsync(s)
			})
			require.NoError(t, err)
			closing(t, g)
			err = to(after)
			assert.ErrorIs(t, err, tt.want)
			if tt.want != nil {
				assert.ErrorContains(t, err, "capture copies of it before that node")
			}
			launch(t, executable(t, g), s)
		})
	}
}
