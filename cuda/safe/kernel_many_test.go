//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Kernels with more parameters than package rt expects. Runs on any driver.

package safe_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sumOf returns a kernel that stores the sum of its n parameters after the first.
func sumOf(t *testing.T, x *safe.Context, n int) *safe.Kernel {
	t.Helper()
	var params, body strings.Builder
	types := []reflect.Type{reflect.TypeFor[sim.Grid](), reflect.TypeFor[[]uint32]()}
	for i := range n {
		fmt.Fprintf(&params, ", .param .u32 sum_p%d", i)
		fmt.Fprintf(&body, "ld.param.u32 v, [sum_p%d]; add.u32 s, s, v;\n", i)
		types = append(types, reflect.TypeFor[uint32]())
	}
	image := fmt.Sprintf(`.version 7.0
.target sm_70
.address_size 64
.visible .entry sumOfMany(.param .u64 sum_out%s)
{
.reg .b32 s, v;
.reg .b64 o;
mov.u32 s, 0;
%sld.param.u64 o, [sum_out];
cvta.to.global.u64 o, o;
st.global.u32 [o], s;
ret;
}
`, &params, &body)
	if !onGPU {
		sum := reflect.MakeFunc(reflect.FuncOf(types, nil, false), func(args []reflect.Value) []reflect.Value {
			out := args[1].Interface().([]uint32)
			out[0] = 0
			for _, v := range args[2:] {
				out[0] += uint32(v.Uint())
			}
			return nil
		})
		require.NoError(t, simulated.Kernel("sumOfMany", sum.Interface()))
	}
	m, err := safe.Load(x, []byte(image))
	require.NoError(t, err)
	closing(t, m)
	k, err := m.Kernel("sumOfMany")
	require.NoError(t, err)
	return k
}

func TestManyArguments(t *testing.T) {
	for _, n := range []int{0, 31, 32, 60} {
		t.Run(fmt.Sprint(n, " and the address"), func(t *testing.T) {
			x := open(t, 0)
			s, out, k := stream(t, x), buffer[uint32](t, x, 1), sumOf(t, x, n)
			args := func(factor uint32) ([]safe.Arg, uint32) {
				args, sum := []safe.Arg{out.Arg()}, uint32(0)
				for i := range n {
					v := factor * uint32(i*i+1)
					args, sum = append(args, safe.Val(v)), sum+v
				}
				return args, sum
			}
			check := func(what string, want uint32) {
				t.Helper()
				got := make([]uint32, 1)
				require.NoError(t, s.Synchronize())
				require.NoError(t, out.CopyToHost(got))
				assert.Equal(t, want, got[0], what)
				require.NoError(t, out.Fill(77))
			}
			one1, sum1 := args(1)
			require.NoError(t, k.Launch(s, one, one1...))
			check("launch", sum1)

			two, sum2 := args(2)
			b := newBatch(t, x)
			require.NoError(t, b.Launch(k, one, two...))
			require.NoError(t, b.Submit(s))
			check("batch", sum2)

			g := newGraph(t, x)
			node, err := g.Add(safe.KernelNode(k, one, one1...))
			require.NoError(t, err)
			exec := executable(t, g)
			require.NoError(t, exec.Launch(s))
			check("graph", sum1)
			require.NoError(t, exec.SetAll(safe.NodeChange{Node: node, Params: safe.KernelNode(k, one, two...)}))
			require.NoError(t, exec.Launch(s))
			check("changed executable", sum2)

			many := newGraph(t, x)
			specs := make([]safe.NodeSpec, 40)
			for i := range specs {
				specs[i].Params = safe.KernelNode(k, one, two...)
				for before := range i {
					specs[i].After = append(specs[i].After, before)
				}
			}
			_, err = many.AddAll(specs...)
			require.NoError(t, err)
			require.NoError(t, executable(t, many).Launch(s))
			check("many nodes", sum2)
		})
	}
}
