//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Parameters of nodes. Runs on any driver.

package safe_test

import (
	"os"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNodeParams reads the parameters with which nodes were made.
func TestNodeParams(t *testing.T) {
	x := open(t, 0)
	const n = 100
	saxpy, e, in, y := kernel(t, x, "saxpy"), event(t, x), host[float32](t, x, n), buffer[float32](t, x, n)
	g := newGraph(t, x)
	grown, allocated, err := safe.AddAlloc[float32](g, n)
	require.NoError(t, err)
	cfg := safe.LaunchConfig{Grid: safe.Dim{X: 3, Y: 2}, Block: safe.Dim{X: 32, Z: 4}, SharedBytes: 128}
	launched := addNode(t, g, safe.KernelNode(saxpy, cfg, safe.Val(uint32(n)), safe.Val(float32(1)), y.Arg(), y.Arg()))
	for _, c := range []struct {
		name string
		node safe.Node
		read func(driver.CUgraphNodeParams) any
		want any
	}{
		{"kernel", launched, func(p driver.CUgraphNodeParams) any { return p.Kernel().GridDimX }, uint32(3)},
		{"copy", addNode(t, g, safe.CopyNode(y, in)), func(p driver.CUgraphNodeParams) any {
			c := p.Memcpy().CopyParams
			return []uint64{uint64(uintptr(c.SrcHost)), uint64(c.DstDevice), c.WidthInBytes, c.Height, c.Depth}
		}, []uint64{uint64(uintptr(unsafe.Pointer(&in.Data()[0]))), uint64(y.Raw()), 4 * n, 1, 1}},
		{"fill", addNode(t, g, safe.FillNode(y, 2)), func(p driver.CUgraphNodeParams) any {
			f := p.Memset()
			return []uint64{uint64(f.Dst), uint64(f.Value), uint64(f.ElementSize), f.Width, f.Height}
		}, []uint64{uint64(y.Raw()), 1 << 30, 4, n, 1}},
		{"alloc", allocated, func(p driver.CUgraphNodeParams) any {
			return []uint64{uint64(p.Alloc().Dptr), p.Alloc().Bytesize}
		}, []uint64{uint64(grown.Raw()), 4 * n}},
		{"free", addNode(t, g, safe.FreeNode(grown), allocated), func(p driver.CUgraphNodeParams) any { return p.Free().Dptr }, grown.Raw()},
		{"record", addNode(t, g, safe.RecordNode(e)), func(p driver.CUgraphNodeParams) any { return p.EventRecord().Event }, e.Raw()},
		{"wait", addNode(t, g, safe.WaitEventNode(e)), func(p driver.CUgraphNodeParams) any { return p.EventWait().Event }, e.Raw()},
		{"empty", addNode(t, g, safe.EmptyNode()), func(p driver.CUgraphNodeParams) any { return p.Type }, driver.CU_GRAPH_NODE_TYPE_EMPTY},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := c.node.Params()
			require.NoError(t, err)
			assert.Equal(t, c.want, c.read(p))
			_, err = c.node.KernelParams()
			if c.node != launched {
				assert.ErrorIs(t, err, safe.ErrInvalidArgument)
				assert.ErrorContains(t, err, "cuda: Node.KernelParams")
			}
		})
	}
	k, err := launched.KernelParams()
	require.NoError(t, err)
	assert.Equal(t, safe.KernelParams{
		Function: saxpy.Raw(), Grid: safe.Dim{X: 3, Y: 2, Z: 1}, Block: safe.Dim{X: 32, Y: 1, Z: 4}, SharedBytes: 128,
	}, k)
}

// TestKernelParamsOfLibrary reads a node that was added with a CUkernel: CUDA reports no
// CUfunction for it.
func TestKernelParamsOfLibrary(t *testing.T) {
	x := open(t, 0)
	needs(t, "cuLibraryLoadData")
	image, err := os.ReadFile("testdata/kernels.ptx")
	require.NoError(t, err)
	g := newGraph(t, x)
	var want driver.CUfunction
	require.NoError(t, x.WithCurrent(func() error {
		var library driver.CUlibrary
		image := append(image, 0)
		require.NoError(t, driver.CuLibraryLoadData(&library, unsafe.Pointer(&image[0]), nil, nil, 0, nil, nil, 0))
		t.Cleanup(func() { assert.NoError(t, driver.CuLibraryUnload(library)) })
		p := driver.CUDA_KERNEL_NODE_PARAMS{
			GridDimX: 5, GridDimY: 1, GridDimZ: 1, BlockDimX: 7, BlockDimY: 1, BlockDimZ: 1, Ctx: x.Raw(),
		}
		require.NoError(t, driver.CuLibraryGetKernel(&p.Kern, library, unsafe.StringData("nothing\x00")))
		require.NoError(t, driver.CuKernelGetFunction(&want, p.Kern))
		var n driver.CUgraphNode
		return driver.CuGraphAddKernelNode(&n, g.Raw(), nil, 0, &p)
	}))
	nodes, err := g.Nodes()
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	k, err := nodes[0].KernelParams()
	require.NoError(t, err)
	assert.Equal(t, safe.KernelParams{Function: want, Grid: safe.Dim{X: 5, Y: 1, Z: 1}, Block: safe.Dim{X: 7, Y: 1, Z: 1}}, k)
}
