//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Parameters of nodes. Runs on any driver.

package safe_test

import (
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
		})
	}
	p, err := launched.Params()
	require.NoError(t, err)
	k := p.Kernel()
	assert.Equal(t, saxpy.Raw(), k.Func)
	assert.Equal(t, []uint32{3, 2, 1, 32, 1, 4, 128}, []uint32{k.GridDimX, k.GridDimY, k.GridDimZ, k.BlockDimX, k.BlockDimY, k.BlockDimZ, k.SharedMemBytes})
}
