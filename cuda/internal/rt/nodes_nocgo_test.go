//go:build !cgo && cudabind_nocgo && linux && (amd64 || arm64)

package rt

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/internal/command"
)

// adder stands for cuGraphKernelNodeSetParams: it adds up the arguments, as many as there are
// blocks, and fails without blocks.
const adder = `
struct params { void *function; unsigned grid[3], block[3], shared; void **params; };
int add(unsigned long *sum, struct params *p)
{
	*sum = 0;
	for (unsigned i = 0; i < p->grid[0]; i++)
		*sum += *(unsigned long *)p->params[i];
	return p->grid[0] ? 0 : 1;
}`

// TestKernelNodesArguments: nodes with fewer and more arguments than a chunk has room for, and a
// node that fails.
func TestKernelNodesArguments(t *testing.T) {
	source, file := filepath.Join(t.TempDir(), "adder.c"), filepath.Join(t.TempDir(), "adder.so")
	require.NoError(t, os.WriteFile(source, []byte(adder), 0o666))
	cc := command.CC("-shared", "-fPIC", "-o", file, source)
	if cc.Err != nil {
		t.Skip("no C compiler: ", cc.Err)
	}
	out, err := cc.CombinedOutput()
	require.NoError(t, err, "%s", out)
	library, err := purego.Dlopen(file, purego.RTLD_NOW)
	require.NoError(t, err)
	doubles(t, map[*uintptr]string{&cu[fnExchangeMode]: "abs"})
	cu[fnSetKernelNode], err = purego.Dlsym(library, "add")
	require.NoError(t, err)

	for _, c := range []struct {
		name string
		args []int // of each node
		done int
	}{
		{"one", []int{1}, 1},
		{"few and many", []int{127, 1, 128, 1, 129, 126, 2, 1000, 900, 127, 1000, 3}, 12},
		{"the first fails", []int{0, 1}, 0},
		{"the second call into C fails", append(slices.Repeat([]int{1}, 16), 0, 1), 16},
		{"the last fails", append(slices.Repeat([]int{5}, 40), 0), 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			sums := make([]uint64, len(c.args))
			var list []uint64
			var nodes []driver.CUgraphNode
			for i, n := range c.args {
				args := make([]Arg, max(n, 1))
				for a := range args {
					args[a] = Arg{Tag: Tag(Near, 8), A: uint64(a + i)}
				}
				k := KernelNode{Grid: [3]uint32{uint32(n)}, Args: uint32(n)}
				list = k.Append(list, &args[0], nil, nil)
				nodes = append(nodes, driver.CUgraphNode(unsafe.Pointer(&sums[i])))
			}
			code, done := KernelNodes(0, 0, SetNode, list, nodes)
			assert.Equal(t, c.done == len(c.args), code == 0)
			assert.Equal(t, c.done, done)
			for i, n := range c.args[:done] {
				assert.EqualValues(t, n*(n-1)/2+n*i, sums[i], "node %d", i)
			}
			runtime.KeepAlive(sums)
		})
	}
}
