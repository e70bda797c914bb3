//go:build linux && cgo

package hard

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	simulated sim.Control
	x         *safe.Context
	options   = compile.Options{IncludePaths: []string{"include"}}
)

// TestMain runs the tests on the simulated driver, with NVIDIA's compiler.
func TestMain(m *testing.M) {
	if err := nvrtc.Open("../../../.cache/libnvrtc/13.5"); err != nil {
		println("skipped: no NVRTC 13.5: make libraries")
		return
	}
	dir, err := os.MkdirTemp("", "hard")
	check(err)
	options.CacheFolder = filepath.Join(dir, "cache")
	file, err := sim.Build(dir, sim.Newest)
	check(err)
	check(driver.Open(file))
	x, err = safe.Open(0)
	check(err)
	simulated, err = sim.Attach(file)
	check(err)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

// loaded loads the kernels, compiled from their source, with doubles.
func loaded(t *testing.T, d HardDoubles) (*Hard, *safe.Stream) {
	t.Helper()
	require.NoError(t, d.Register(simulated))
	k, err := LoadHard(context.Background(), x, options)
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.NoError(t, k.Close())
	})
	return k, s
}

// TestArguments tests what arrives at a kernel of numbers, structs, pointers, and structs with pointers.
func TestArguments(t *testing.T) {
	var got []any
	k, s := loaded(t, HardDoubles{
		Block: func(_ sim.Grid, a, b []float32, n int32) { b[0] = a[1]; got = append(got, n) },
		Enums: func(_ sim.Grid, c Color, m Mode, w Wide, y Byte, b bool, o []int32) {
			got = append(got, c, m, w, y, b, o == nil)
		},
		Values: func(_ sim.Grid, b Base, d Derived, a Aligned, a8 A8, pk Packed, bi Bits, u Union, an Anonymous, o []float32) {
			got = append(got, b.W, d.Id, d.X, a.V[2], a8.I, pk.D(), bi.C(), bi.On(), u.F(), an.F(), an.In[1].B)
		},
		Values2: func(_ sim.Grid, h Half, p Pointers, n Nested, m Multiple, e EmptyBase, w WithStatic, self Self, o []float32) {
			got = append(got, h.D4.W, sim.Slice[float32](uint64(p.In.Raw()))[1], p.N, n.Mat[2][3], sim.Slice[Base](uint64(n.P.Bases.Raw()))[0].Id, m.S, m.Base.Id)
		},
	})
	a, err := safe.Upload(x, []float32{1, 2, 3})
	require.NoError(t, err)
	b, err := safe.NewBuffer[float32](x, 1)
	require.NoError(t, err)
	bases, err := safe.Upload(x, []Base{{Id: 77}})
	require.NoError(t, err)
	var pk Packed
	pk.SetD(2.5)
	var bits Bits
	bits.SetC(-3)
	bits.SetOn(1)
	var u Union
	u.SetF(1.5)
	var an Anonymous
	an.SetF(-2)
	an.In[1].B = -9
	nested := NestedArg{P: PointersArg{Bases: bases}}
	nested.Mat[2][3] = 23

	require.NoError(t, k.Block.Launch(s, one, a, b, 5))
	require.NoError(t, k.Enums.Launch(s, one, ColorGreen, ModeFast, WideBig, ByteLast, true, nil))
	require.NoError(t, k.Values.Launch(s, one, Base{W: 4}, Derived{Base: Base{Id: 6}, X: 7}, Aligned{V: [3]float32{0, 0, 8}}, A8{I: 9}, pk, bits, u, an, nil))
	require.NoError(t, k.Values2.Launch(s, one, Half{}, PointersArg{In: a, N: 11}, nested, Multiple{Base: Base{Id: 13}, S: 12}, EmptyBase{}, WithStatic{}, SelfArg{}, b))
	require.NoError(t, a.Close()) // the launches retain it
	require.NoError(t, bases.Close())
	require.NoError(t, s.Synchronize())
	assert.Equal(t, []any{int32(5),
		ColorGreen, ModeFast, WideBig, ByteLast, true, true,
		4.0, int32(6), float32(7), float32(8), int32(9), 2.5, int32(-3), uint8(1), float32(1.5), float32(-2), int16(-9),
		0.0, float32(2), int32(11), float32(23), int32(77), int16(12), int32(13)}, got)
	values, err := b.Download()
	require.NoError(t, err)
	assert.Equal(t, []float32{2}, values)
}

// TestWays tests launches in graphs and in batches.
func TestWays(t *testing.T) {
	calls := 0
	k, s := loaded(t, HardDoubles{ScaledFloat2: func(g sim.Grid, v []float32, by float32, w VecFloat2) {
		calls++
		for i := range v {
			v[i] *= by + w.V[1]
		}
	}})
	b, err := safe.Upload(x, []float32{1, 2})
	require.NoError(t, err)
	w := VecFloat2{V: [2]float32{0, 1}}
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	_, err = g.Add(k.ScaledFloat2.Node(one, b, 1, w))
	require.NoError(t, err)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	batch, err := safe.NewBatch(x)
	require.NoError(t, err)
	require.NoError(t, k.ScaledFloat2.Batch(batch, one, b, 2, w))
	require.NoError(t, exec.Launch(s))
	require.NoError(t, batch.Submit(s))
	got, err := b.Download()
	require.NoError(t, err)
	assert.Equal(t, []float32{6, 12}, got)
	assert.Equal(t, 2, calls)
}

// TestBounds tests that a block of more threads than __launch_bounds__ is refused before CUDA is called.
func TestBounds(t *testing.T) {
	k, s := loaded(t, HardDoubles{})
	before := simulated.Calls("cuLaunchKernel")
	err := k.Bounds.Launch(s, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 257}}, nil)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorContains(t, err, "257 threads per block, the maximum of bounds is 256")
	assert.Equal(t, before, simulated.Calls("cuLaunchKernel"))
}

// TestVariables tests that the program and kernels share the variables of a module.
func TestVariables(t *testing.T) {
	k, s := loaded(t, HardDoubles{Variables: func(_ sim.Grid, o []int32) {
		o[0] = int32(sim.Variable[float32]("coefficients")[3]) + int32(sim.Variable[Point]("geo::origin")[0].Y)
	}})
	c, err := k.Coefficients()
	require.NoError(t, err)
	assert.Equal(t, 16, c.Len())
	require.NoError(t, c.Fill(5))
	origin, err := k.GeoOrigin()
	require.NoError(t, err)
	require.NoError(t, origin.CopyFromHost([]Point{{1, 2}}))
	o, err := safe.NewBuffer[int32](x, 1)
	require.NoError(t, err)
	require.NoError(t, k.Variables.Launch(s, one, o))
	got, err := o.Download()
	require.NoError(t, err)
	assert.Equal(t, []int32{7}, got)
	for _, close := range []func() error{c.Close, origin.Close} {
		require.NoError(t, close())
	}
	for name, f := range map[string]func() error{
		"matrix": func() error {
			m, err := k.Matrix()
			require.NoError(t, err)
			assert.Equal(t, 2, m.Len())
			return m.Close()
		},
		"counter":  func() error { m, err := k.Counter(); require.NoError(t, err); return m.Close() },
		"hidden":   func() error { m, err := k.Hidden(); require.NoError(t, err); return m.Close() },
		"where":    func() error { m, err := k.Where(); require.NoError(t, err); return m.Close() },
		"constant": func() error { m, err := k.Base(); require.NoError(t, err); return m.Close() },
	} {
		t.Run(name, func(t *testing.T) { assert.NoError(t, f()) })
	}
}

// TestWithoutDouble tests that a launch of a kernel that has no double says so.
func TestWithoutDouble(t *testing.T) {
	k, s := loaded(t, HardDoubles{})
	t.Cleanup(func() { simulated.Reset() })
	require.NoError(t, k.Local.Launch(s, one, nil))
	assert.Error(t, s.Synchronize())
	assert.Contains(t, simulated.Violation(), "HardDoubles.Local is nil: kernel local(int *p) has no double")
}

// launches are the same launch by a typed function and without one, and others that only a typed one has.
func launches(t *testing.T, s *safe.Stream) map[string]func() error {
	require.NoError(t, ShapesDoubles{Regions: func(sim.Grid, []float32, []float32, []uint8, int32, uint64, []Pair) {}}.Register(simulated))
	require.NoError(t, HardDoubles{
		Values2:      func(sim.Grid, Half, Pointers, Nested, Multiple, EmptyBase, WithStatic, Self, []float32) {},
		GridConstant: func(sim.Grid, Nested, []float32) {},
	}.Register(simulated))
	shapes, err := LoadShapes(context.Background(), x, options)
	require.NoError(t, err)
	hard, err := LoadHard(context.Background(), x, options)
	require.NoError(t, err)
	f, err := safe.NewBuffer[float32](x, 8)
	require.NoError(t, err)
	b, err := safe.NewBuffer[uint8](x, 8)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Synchronize())
		for _, close := range []func() error{shapes.Close, hard.Close, f.Close, b.Close} {
			assert.NoError(t, close())
		}
	})
	return map[string]func() error{
		"untyped": func() error {
			return shapes.Regions.Kernel.Launch(s, one, f.Arg(), f.Arg(), b.Arg(), safe.Val(int32(8)), safe.Val(uint64(1)), safe.Val(uint64(0)))
		},
		"typed": func() error { return shapes.Regions.Launch(s, one, f, f, b, 8, 1, nil) },
		"structs with pointers": func() error {
			return hard.Values2.Launch(s, one, Half{}, PointersArg{In: f, Any: b}, NestedArg{P: PointersArg{Out: f}}, Multiple{}, EmptyBase{}, WithStatic{}, SelfArg{}, f)
		},
		"a large struct": func() error { return hard.GridConstant.Launch(s, one, NestedArg{}, f) },
	}
}

// TestNoAllocations tests that typed launches allocate nothing.
func TestNoAllocations(t *testing.T) {
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	for name, launch := range launches(t, s) {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			_, err := s.LaunchHostFunc(func() { <-release }) // doubles of kernels would allocate meanwhile
			require.NoError(t, err)
			assert.Zero(t, testing.AllocsPerRun(100, func() { check(launch()) }))
			close(release)
			require.NoError(t, s.Synchronize())
		})
	}
}
