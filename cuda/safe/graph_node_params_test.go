//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Typed readers of node parameters. Runs on any driver.

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

// A reader is a method that reads a node's parameters, as far as the test compares them.
type reader struct {
	name string
	of   func(safe.Node) (any, error)
}

var readers = []reader{
	{"KernelParams", func(n safe.Node) (any, error) { return n.KernelParams() }},
	{"CopyParams", func(n safe.Node) (any, error) {
		p, err := n.CopyParams()
		return []uint64{uint64(uintptr(p.SrcHost)), uint64(p.DstDevice), p.WidthInBytes, p.Height, p.Depth}, err
	}},
	{"FillParams", func(n safe.Node) (any, error) {
		p, err := n.FillParams()
		p.Pitch = 0 // unused with one row
		return p, err
	}},
	{"AllocParams", func(n safe.Node) (any, error) {
		p, err := n.AllocParams()
		return []uint64{uint64(p.Dptr), p.Bytesize}, err
	}},
	{"FreeParams", func(n safe.Node) (any, error) { return n.FreeParams() }},
	{"Event", func(n safe.Node) (any, error) { return n.Event() }},
}

// TestNodeParams reads nodes of each type with each reader: one returns the parameters with
// which the node was made, the others return ErrInvalidArgument.
func TestNodeParams(t *testing.T) {
	x := open(t, 0)
	const n = 100
	saxpy, e, in, y := kernel(t, x, "saxpy"), event(t, x), host[float32](t, x, n), buffer[float32](t, x, n)
	g := newGraph(t, x)
	grown, allocated, err := safe.AddAlloc[float32](g, n)
	require.NoError(t, err)
	cfg := safe.LaunchConfig{Grid: safe.Dim{X: 3, Y: 2}, Block: safe.Dim{X: 32, Z: 4}, SharedBytes: 128}
	for _, c := range []struct {
		name string
		node safe.Node
		by   string // empty if only Params reads the type
		want any
	}{
		{"kernel", addNode(t, g, safe.KernelNode(saxpy, cfg, safe.Val(uint32(n)), safe.Val(float32(1)), y.Arg(), y.Arg())), "KernelParams", safe.KernelParams{
			Function: saxpy.Raw(), Grid: safe.Dim{X: 3, Y: 2, Z: 1}, Block: safe.Dim{X: 32, Y: 1, Z: 4}, SharedBytes: 128,
		}},
		{"copy", addNode(t, g, safe.CopyNode(y, in)), "CopyParams", []uint64{uint64(uintptr(unsafe.Pointer(&in.Data()[0]))), uint64(y.Raw()), 4 * n, 1, 1}},
		{"fill", addNode(t, g, safe.FillNode(y, 2)), "FillParams", driver.CUDA_MEMSET_NODE_PARAMS{
			Dst: y.Raw(), Value: 1 << 30, ElementSize: 4, Width: n, Height: 1,
		}},
		{"alloc", allocated, "AllocParams", []uint64{uint64(grown.Raw()), 4 * n}},
		{"free", addNode(t, g, safe.FreeNode(grown), allocated), "FreeParams", grown.Raw()},
		{"record", addNode(t, g, safe.RecordNode(e)), "Event", e.Raw()},
		{"wait", addNode(t, g, safe.WaitEventNode(e)), "Event", e.Raw()},
		{"empty", addNode(t, g, safe.EmptyNode()), "", nil},
	} {
		for _, r := range readers {
			t.Run(c.name+"/"+r.name, func(t *testing.T) {
				got, err := r.of(c.node)
				if r.name != c.by {
					require.ErrorIs(t, err, safe.ErrInvalidArgument)
					require.ErrorContains(t, err, "cuda: Node."+r.name)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, c.want, got)
			})
		}
	}
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
