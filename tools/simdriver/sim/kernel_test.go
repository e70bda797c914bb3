//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loaded returns a kernel of PTX text.
func loaded(t *testing.T, ptx, name string) driver.CUfunction {
	t.Helper()
	image := append([]byte(".version 7.0\n.target sm_70\n.address_size 64\n"+ptx), 0)
	var m driver.CUmodule
	require.NoError(t, driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])))
	t.Cleanup(func() { assert.NoError(t, driver.CuModuleUnload(m)) })
	var f driver.CUfunction
	require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData(name+"\x00")))
	return f
}

// entry is PTX of a kernel with parameters of these types.
func entry(name string, types ...string) string {
	var params []string
	for _, p := range types {
		params = append(params, ".param "+p+" p"+string(rune('a'+len(params))))
	}
	return ".visible .entry " + name + "(" + strings.Join(params, ", ") + ") { ret; }\n"
}

// run launches 2 blocks of 4 threads.
func run(f driver.CUfunction, s driver.CUstream, args ...unsafe.Pointer) error {
	args = append(args, nil)
	return driver.CuLaunchKernel(f, 2, 1, 1, 4, 1, 1, 16, s, &args[0], nil)
}

func at[T any](v T) unsafe.Pointer { return unsafe.Pointer(&v) }

func TestKernelGetsItsArguments(t *testing.T) {
	primary(t, 0)
	p := memory(t, 4*100)
	type mixed struct {
		A uint64
		B float32
		C [2]int16
	}
	for _, c := range []struct {
		name     string
		types    []string
		register func(done chan any) any
		args     []unsafe.Pointer
		want     any
	}{
		{"the grid", nil,
			func(done chan any) any { return func(g sim.Grid) { done <- g } }, nil,
			sim.Grid{Grid: sim.Dim{X: 2, Y: 1, Z: 1}, Block: sim.Dim{X: 4, Y: 1, Z: 1}, Cluster: sim.Dim{X: 1, Y: 1, Z: 1}, Shared: 16}},
		{"numbers", []string{".u8", ".s16", ".u32", ".s64", ".f32", ".f64"},
			func(done chan any) any {
				return func(_ sim.Grid, a bool, b int16, c uint32, d int64, e float32, f float64) {
					done <- []any{a, b, c, d, e, f}
				}
			},
			[]unsafe.Pointer{at(true), at(int16(-2)), at(uint32(3)), at(int64(-4)), at(float32(1.5)), at(2.5)},
			[]any{true, int16(-2), uint32(3), int64(-4), float32(1.5), 2.5}},
		{"the rest of an allocation", []string{".u64"},
			func(done chan any) any { return func(_ sim.Grid, v []float32) { done <- []int{len(v), cap(v)} } },
			[]unsafe.Pointer{at(p + 40)}, []int{90, 90}},
		{"whole values of it", []string{".u64 .ptr .global .align 16"},
			func(done chan any) any { return func(_ sim.Grid, v [][3]float32) { done <- len(v) } },
			[]unsafe.Pointer{at(p)}, 33},
		{"the end of it", []string{".u64"},
			func(done chan any) any { return func(_ sim.Grid, v []byte) { done <- []any{len(v), v != nil} } },
			[]unsafe.Pointer{at(p + 400)}, []any{0, true}},
		{"no address", []string{".u64"},
			func(done chan any) any { return func(_ sim.Grid, v []float32) { done <- v == nil } },
			[]unsafe.Pointer{at(uint64(0))}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			s := stream(t)
			done := make(chan any, 1)
			require.NoError(t, control.Kernel("mine", c.register(done)))
			f := loaded(t, entry("mine", c.types...), "mine")
			require.NoError(t, run(f, s, c.args...))
			require.NoError(t, driver.CuStreamSynchronize(s))
			assert.Equal(t, c.want, <-done)
		})
	}
	t.Run("a struct", func(t *testing.T) {
		primary(t, 0)
		s, done := stream(t), make(chan mixed, 1)
		require.NoError(t, control.Kernel("mine", func(_ sim.Grid, _ uint32, m mixed) { done <- m }))
		f := loaded(t, ".visible .entry mine(.param .u32 a, .param .align 8 .b8 m[16]) { ret; }", "mine")
		m := mixed{1, 2, [2]int16{3, 4}}
		require.NoError(t, run(f, s, at(uint32(1)), at(m)))
		assert.Equal(t, m, <-done)
	})
}

// TestKernelSeesItsSize: clusters, and the shared memory of each block, also of a graph's launch.
func TestKernelSeesItsSize(t *testing.T) {
	primary(t, 0)
	s, sizes := stream(t), make(chan sim.Grid, 2)
	require.NoError(t, control.Kernel("sized", func(g sim.Grid) { sizes <- g }))
	f := loaded(t, entry("sized"), "sized")
	attribute := driver.CUlaunchAttribute{Id: driver.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}
	*attribute.Value.ClusterDim() = driver.CUlaunchAttributeValue_clusterDim{X: 2, Y: 3, Z: 1}
	config := driver.CUlaunchConfig{GridDimX: 4, GridDimY: 3, GridDimZ: 2, BlockDimX: 8, BlockDimY: 1, BlockDimZ: 1,
		SharedMemBytes: 1000, HStream: s, Attrs: &attribute, NumAttrs: 1}
	launch := func() { require.NoError(t, driver.CuLaunchKernelEx(&config, f, nil, nil)) }
	launch()
	launchCaptured(t, s, launch)
	require.NoError(t, driver.CuStreamSynchronize(s))
	want := sim.Grid{Grid: sim.Dim{X: 4, Y: 3, Z: 2}, Block: sim.Dim{X: 8, Y: 1, Z: 1}, Cluster: sim.Dim{X: 2, Y: 3, Z: 1}, Shared: 1000}
	assert.Equal(t, want, <-sizes)
	assert.Equal(t, want, <-sizes)
}

// scaled registers a kernel "scaled" that multiplies n numbers by a.
func scaled(t *testing.T) driver.CUfunction {
	t.Helper()
	require.NoError(t, control.Kernel("scaled", func(g sim.Grid, v []uint32, a, n uint32) {
		for i := range min(int(n), g.Threads()) {
			v[i] *= a
		}
	}))
	return loaded(t, entry("scaled", ".u64", ".u32", ".u32"), "scaled")
}

func TestKernelRunsInOrder(t *testing.T) {
	primary(t, 0)
	a, b, e, p := stream(t), stream(t), event(t), memory(t, 8)
	f, open := scaled(t), gate(t, a)
	require.NoError(t, driver.CuMemsetD32Async(p, 5, 2, a))
	require.NoError(t, run(f, a, at(p), at(uint32(3)), at(uint32(2))))
	require.NoError(t, driver.CuEventRecord(e, a))
	require.NoError(t, driver.CuStreamWaitEvent(b, e, 0))
	require.NoError(t, run(f, b, at(p), at(uint32(7)), at(uint32(1))))
	assert.ErrorIs(t, driver.CuStreamQuery(b), driver.CUDA_ERROR_NOT_READY)
	open()
	require.NoError(t, driver.CuStreamSynchronize(b))
	assert.Equal(t, []uint32{105, 15}, words(t, p, 2))
}

// TestKernelInGraphs: captured, with other parameters in the executable, and by hand.
func TestKernelInGraphs(t *testing.T) {
	primary(t, 0)
	s, p := stream(t), memory(t, 8)
	f := scaled(t)
	require.NoError(t, driver.CuMemsetD32Async(p, 1, 2, s))
	require.NoError(t, driver.CuStreamBeginCapture(s, driver.CU_STREAM_CAPTURE_MODE_RELAXED))
	require.NoError(t, run(f, s, at(p), at(uint32(2)), at(uint32(2))))
	var g driver.CUgraph
	require.NoError(t, driver.CuStreamEndCapture(s, &g))
	t.Cleanup(func() { assert.NoError(t, driver.CuGraphDestroy(g)) })
	var e driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	t.Cleanup(func() { assert.NoError(t, driver.CuGraphExecDestroy(e)) })
	for range 2 {
		require.NoError(t, driver.CuGraphLaunch(e, s))
	}
	require.NoError(t, driver.CuStreamSynchronize(s))
	require.Equal(t, []uint32{4, 4}, words(t, p, 2))

	var node driver.CUgraphNode
	n := uint64(1)
	require.NoError(t, driver.CuGraphGetNodes(g, &node, &n))
	args := []unsafe.Pointer{at(p + 4), at(uint32(5)), at(uint32(1))}
	params := driver.CUDA_KERNEL_NODE_PARAMS{Func: f, GridDimX: 1, GridDimY: 1, GridDimZ: 1, BlockDimX: 1, BlockDimY: 1, BlockDimZ: 1, KernelParams: &args[0]}
	require.NoError(t, driver.CuGraphExecKernelNodeSetParams(e, node, &params))
	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{4, 20}, words(t, p, 2))
}

// TestKernelRunsBesideCalls: while it runs, the driver answers others, but not the kernel.
func TestKernelRunsBesideCalls(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	begun, end, inside := make(chan bool), make(chan bool), make(chan error, 1)
	require.NoError(t, control.Kernel("long", func(sim.Grid) {
		var n int32
		inside <- driver.CuDeviceGetCount(&n)
		begun <- true
		<-end
	}))
	require.NoError(t, run(loaded(t, entry("long"), "long"), s))
	<-begun
	assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_NOT_READY)
	p := memory(t, 4)
	assert.NoError(t, driver.CuMemsetD32(p, 1, 1))
	end <- true
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.ErrorIs(t, <-inside, driver.CUDA_ERROR_NOT_PERMITTED)
}

func TestKernelSignatures(t *testing.T) {
	for _, c := range []struct {
		name, kernel string
		function     any
		says         string
	}{
		{"nothing", "k", nil, `sim: kernel "k": <nil> is not a function`},
		{"no function", "k", 1, "int is not a function"},
		{"a nil function", "k", (func(sim.Grid))(nil), "is not a function"},
		{"no name", "", func(sim.Grid) {}, "a kernel needs a name"},
		{"no grid", "k", func(n int32) {}, "the first parameter of func(int32) must be a sim.Grid"},
		{"no parameters", "k", func() {}, "must be a sim.Grid"},
		{"results", "k", func(sim.Grid) error { return nil }, "has results"},
		{"variadic", "k", func(sim.Grid, ...int32) {}, "variable number"},
		{"int", "k", func(sim.Grid, int32, int) {}, "parameter 2 is int: int has no size of its own in C; use int32 for int"},
		{"slice of int", "k", func(sim.Grid, []int) {}, "parameter 1 is []int: int has no size"},
		{"pointer", "k", func(sim.Grid, *float32) {}, "parameter 1 is *float32: device memory cannot hold *float32"},
		{"string in a struct", "k", func(_ sim.Grid, _ struct{ Name string }) {}, "device memory cannot hold string"},
		{"slices of slices", "k", func(sim.Grid, [][]float32) {}, "device memory cannot hold []float32"},
		{"no bytes", "k", func(sim.Grid, []struct{}) {}, "it has no bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.ErrorContains(t, control.Kernel(c.kernel, c.function), c.says)
		})
	}
}

// TestKernelsThatDoNotRun are refused by name, also into graphs, and the log says why.
func TestKernelsThatDoNotRun(t *testing.T) {
	require.NoError(t, control.Kernel("two", func(sim.Grid, []float32, uint32) {}))
	for _, c := range []struct{ name, ptx, kernel, says string }{
		{"not registered", entry("strange", ".u64"), "strange", "kernel strange is not registered with the simulated driver: register it with sim.Main or sim.Control.Kernel, or build it with simdriver -kernels"},
		{"another by the name of one that is built in", entry("saxpy", ".u64", ".u32"), "saxpy", "kernel saxpy is not registered"},
		{"other parameters", entry("two", ".u64", ".u64"), "two", "kernel two has parameters of other sizes than the registered function: in bytes, 8, 8 against 8, 4"},
		{"fewer parameters", entry("two"), "two", "kernel two has parameters of other sizes than the registered function: in bytes, none against 8, 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			s := stream(t)
			f := loaded(t, c.ptx, c.kernel)
			var before driver.CUlogIterator
			require.NoError(t, driver.CuLogsCurrent(&before, 0))
			assert.ErrorIs(t, run(f, s, at(uint64(0)), at(uint64(0))), driver.CUDA_ERROR_NOT_SUPPORTED)
			text := make([]byte, 25600)
			size := uint64(len(text))
			require.NoError(t, driver.CuLogsDumpToMemory(&before, &text[0], &size, 0))
			assert.Contains(t, string(text[:size]), "[CUDA][E] "+c.says)
			violated(t, c.says)
		})
	}
}

func TestKernelNames(t *testing.T) {
	for _, c := range []struct{ registered, loaded string }{
		{"k1", "k1"},
		{"_Z2k2Pf", "_Z2k2Pf"},
		{"k3", "_Z2k3Pf"},
		{"ns::inner::k4", "_ZN2ns5inner2k4EPf"},
		{"k5<float,4>", "_Z2k5IfLi4EEvPT_"},
		{"k6", "_Z2k6IfLi4EEvPT_"},
		{"k7<ns::pair<int>,true>", "_Z2k7IN2ns4pairIiEELb1EEvv"},
		{"ns::k10", "_ZN2ns3k10INS_4pairIiEELb1EEEvv"},
		{"ns::k8<half*,-1>", "_ZN2ns2k8IP4halfLin1EEEvv"},
		{"ns::k9", "_ZN2ns2k9IfEEvv"},
		{"_Z5scaleIfEvPT_S0_i", "_Z5scaleIfEvPT_S0_i"},
		{"k11<float>", "_Z3k11IfEvPT_S0_i"},
		{"k12", "_Z3k125PointPdS0_"},
		{"k13<Point>", "_Z3k13I5PointEvT_S1_"},
	} {
		t.Run(c.loaded, func(t *testing.T) {
			primary(t, 0)
			s, ran := stream(t), false
			require.NoError(t, control.Kernel(c.registered, func(sim.Grid) { ran = true }))
			require.NoError(t, run(loaded(t, entry(c.loaded), c.loaded), s))
			require.NoError(t, driver.CuStreamSynchronize(s))
			assert.True(t, ran)
		})
	}
}

// TestKernelOnSeveralDevices: each has its own memory.
func TestKernelOnSeveralDevices(t *testing.T) {
	for device := range driver.CUdevice(2) {
		primary(t, device)
		s, p := stream(t), memory(t, 4)
		f := scaled(t)
		require.NoError(t, driver.CuMemsetD32Async(p, 6, 1, s))
		require.NoError(t, run(f, s, at(p), at(uint32(7)), at(uint32(1))))
		require.NoError(t, driver.CuStreamSynchronize(s))
		assert.Equal(t, []uint32{42}, words(t, p, 1))
	}
}

// TestKernelsInC are found beside the driver.
func TestKernelsInC(t *testing.T) {
	primary(t, 0)
	s, p := stream(t), memory(t, 40)
	text := entry("number", ".u64", ".u32") + entry("_Z5clearPj", ".u64")
	require.NoError(t, run(loaded(t, text, "number"), s, at(p), at(uint32(10))))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{0, 1, 2, 3, 4, 5, 6, 7}, words(t, p, 8))
	require.NoError(t, run(loaded(t, text, "_Z5clearPj"), s, at(p+4)))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{0, 0, 2}, words(t, p, 3))
}

func TestBuildKernelsFails(t *testing.T) {
	dir := t.TempDir()
	_, err := sim.BuildKernels(dir)
	assert.ErrorContains(t, err, "no kernels to build")
	_, err = sim.BuildKernels(dir, "testdata/none.c")
	assert.ErrorContains(t, err, "none.c")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestKernelSetsConditions: the body of a while node has a kernel that counts down.
func TestKernelSetsConditions(t *testing.T) {
	primary(t, 0)
	require.NoError(t, control.Kernel("count", func(_ sim.Grid, handle uint64, left []uint32) {
		left[1]++
		left[0]--
		control.SetCondition(handle, left[0])
	}))
	f, s, p, g := loaded(t, entry("count", ".u64", ".u64"), "count"), stream(t), memory(t, 8), newGraph(t)
	h := condition(t, g, 1, 1)
	_, bodies, err := conditionNode(g, h, driver.CU_GRAPH_COND_TYPE_WHILE, 1)
	require.NoError(t, err)
	setter(t, bodies[0], f, h, p)
	var e driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	t.Cleanup(func() { assert.NoError(t, driver.CuGraphExecDestroy(e)) })
	require.NoError(t, driver.CuMemsetD32Async(p, 3, 1, s))
	require.NoError(t, driver.CuMemsetD32Async(p+4, 0, 1, s))
	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{0, 3}, words(t, p, 2))

	control.SetCondition(uint64(h), 1)
	violated(t, "no kernel runs")
}
