//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Launches, their arguments and errors; modules. Runs on any driver.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type pointStruct struct {
	A uint64
	B float64
	C uint32
	_ uint32
}

type pair struct {
	A uint64
	B float64
}

func TestLaunchArguments(t *testing.T) {
	x := open(t, 0)
	s, out := stream(t, x), buffer[float64](t, x, 6)
	p := pointStruct{A: 1 << 40, B: 2.5, C: 7}
	point := kernel(t, x, "point")
	got := make([]float64, 6)
	for name, arg := range map[string]safe.Arg{"Val": safe.Val(p), "Ref": safe.Ref(&p)} {
		require.NoError(t, out.Fill(0))
		require.NoError(t, point.Launch(s, one, arg, out.Arg()), name)
		require.NoError(t, out.CopyToHost(got))
		assert.Equal(t, []float64{1 << 40, 2.5, 7, 0, 0, 0}, got, name)
	}
	require.NoError(t, out.Fill(0))
	require.NoError(t, kernel(t, x, "pair").Launch(s, one, safe.Val(pair{3, 0.5}), out.Arg()))
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, []float64{3, 0.5, 0, 0, 0, 0}, got)
	many := kernel(t, x, "many")
	require.NoError(t, many.Launch(s, one, safe.Val(uint8(200)), safe.Val(int16(-300)), safe.Val(uint32(70000)),
		safe.Val(int64(-1<<40)), safe.Val(float32(0.5)), safe.Val(0.25), out.Arg()))
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, []float64{200, -300, 70000, -1 << 40, 0.5, 0.25}, got)

	h := host[float64](t, x, 6)
	tail, err := h.Slice(3, 6)
	require.NoError(t, err)
	require.NoError(t, point.Launch(s, one, safe.Val(p), tail.Arg()))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, []float64{1 << 40, 2.5, 7}, h.Data()[3:])
}

func TestLaunchRefused(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 10)
	closed, err := safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	fill, limited := kernel(t, x, "fill"), kernel(t, x, "limited")
	n, v := safe.Val(uint32(10)), safe.Val(float32(1))
	_, err = fill.Parameters()
	tells := err == nil
	for _, test := range []struct {
		name   string
		kernel *safe.Kernel
		cfg    safe.LaunchConfig
		args   []safe.Arg
		is     error
		says   string
		asks   bool // needs a driver that reports the parameters
	}{
		{"too few", fill, one, []safe.Arg{n, v}, safe.ErrInvalidArgument, "2 arguments for fill, which has 3 parameters", true},
		{"too many", fill, one, []safe.Arg{n, v, b.Arg(), n}, safe.ErrInvalidArgument, "4 arguments for fill, which has 3 parameters", true},
		{"size", fill, one, []safe.Arg{safe.Val(10), v, b.Arg()}, safe.ErrInvalidArgument, "argument 0 of fill has 8 bytes, but the parameter has 4: pass int32 or uint32 for C's int, and float32 for float", true},
		{"too few, of which one is wrong", fill, one, []safe.Arg{safe.Val(10)}, safe.ErrInvalidArgument, "1 arguments for fill, which has 3 parameters", true},
		{"Go pointer", fill, one, []safe.Arg{safe.Val("text"), v, b.Arg()}, safe.ErrInvalidArgument, "type string contains Go pointers", false},
		{"nil Ref", fill, one, []safe.Arg{safe.Ref[uint32](nil), v, b.Arg()}, safe.ErrInvalidArgument, "the Ref is of a nil *uint32", false},
		{"closed buffer", fill, one, []safe.Arg{n, v, closed.Arg()}, safe.ErrClosed, "argument 2 of fill: its memory", false},
		{"nil buffer", fill, one, []safe.Arg{n, v, (*safe.Buffer[int])(nil).Arg()}, safe.ErrClosed, "argument 2 of fill", false},
		{"no grid", limited, safe.LaunchConfig{Block: safe.Dim{X: 1}}, nil, driver.CUDA_ERROR_INVALID_VALUE, "grid.X is 0", false},
		{"grid", limited, safe.LaunchConfig{Grid: safe.Dim{X: 1, Y: 70000}, Block: safe.Dim{X: 1}}, nil, driver.CUDA_ERROR_INVALID_VALUE, "grid.Y is 70000, the maximum is 65535", false},
		{"block", fill, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1, Z: 100}}, []safe.Arg{n, v, b.Arg()}, driver.CUDA_ERROR_INVALID_VALUE, "block.Z is 100, the maximum is 64", false},
		{"threads", limited, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 128}}, nil, safe.ErrInvalidArgument, "128 threads per block, the maximum of limited is 64", false},
		{"shared", limited, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}, SharedBytes: 60 << 10}, nil, driver.CUDA_ERROR_INVALID_VALUE, "MAX_DYNAMIC_SHARED_SIZE_BYTES", false},
		{"cooperative", kernel(t, x, "nothing"), safe.LaunchConfig{Grid: safe.Dim{X: 1 << 20}, Block: safe.Dim{X: 64}, Cooperative: true}, nil, driver.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "can run at once", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.asks && !tells {
				t.Skip("the driver does not report the parameters")
			}
			err := test.kernel.Launch(s, test.cfg, test.args...)
			require.Error(t, err)
			if test.is != nil {
				assert.ErrorIs(t, err, test.is)
			}
			assert.ErrorContains(t, err, test.says)
			assert.ErrorContains(t, err, "Kernel.Launch")
		})
	}
	require.NoError(t, s.Synchronize(), "nothing is broken")
}

func TestLaunchWithAttributes(t *testing.T) {
	x := open(t, 0)
	s, out, k := stream(t, x), buffer[uint32](t, x, 64), kernel(t, x, "shared")
	n := 16 << 10 // values, 64 KiB
	require.NoError(t, k.SetAttribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4*n))
	most, err := k.Attribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
	require.NoError(t, err)
	assert.Equal(t, 4*n, most)
	cfg := safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 64}, SharedBytes: uint32(4 * n), Cooperative: true}
	require.NoError(t, k.Launch(s, cfg, out.Arg(), safe.Val(uint32(64))))
	require.NoError(t, s.Synchronize())
	p, err := x.Device().Properties()
	require.NoError(t, err)
	if !p.ClusterLaunch {
		t.Skip("the device has no clusters")
	}
	require.NoError(t, kernel(t, x, "nothing").Launch(s, safe.LaunchConfig{Grid: safe.Dim{X: 4}, Block: safe.Dim{X: 32}, Cluster: safe.Dim{X: 2}}))
	require.NoError(t, s.Synchronize())
}

// TestLaunchBesideRawCapture tests that a launch does not invalidate a capture of another thread that
// package safe does not know, though CUDA may have to allocate local memory for the kernel.
func TestLaunchBesideRawCapture(t *testing.T) {
	x := open(t, 0)
	for name, body := range map[string]string{
		"plain": "",
		"local memory": `
	.local .align 4 .b8 depot[4096];
	.reg .b32 thread, block, found;
	.reg .b64 at, offset;
	.reg .pred other;
	mov.u32 thread, %tid.x;
	mov.u32 block, %ctaid.x;
	mov.u64 at, depot;
	mul.wide.u32 offset, thread, 4;
	add.u64 offset, at, offset;
	st.local.u32 [offset], thread;
	mul.wide.u32 offset, block, 4;
	add.u64 offset, at, offset;
	ld.local.u32 found, [offset];
	setp.ne.u32 other, found, thread;
	@other trap;
`,
	} {
		t.Run(name, func(t *testing.T) {
			m, err := safe.Load(x, []byte(head+".visible .entry nothing()\n{\n"+body+"\tret;\n}\n"))
			require.NoError(t, err)
			closing(t, m)
			k, err := m.Kernel("nothing")
			require.NoError(t, err)
			captures, s := stream(t, x), stream(t, x)
			require.NoError(t, x.WithCurrent(func() error {
				require.NoError(t, driver.CuStreamBeginCapture(captures.Raw(), driver.CU_STREAM_CAPTURE_MODE_GLOBAL))
				launched := make(chan error)
				go func() { launched <- errors.Join(k.Launch(s, one), k.Launch(s, one)) }()
				assert.NoError(t, <-launched)
				var g driver.CUgraph
				if err := driver.CuStreamEndCapture(captures.Raw(), &g); err != nil {
					return err
				}
				return driver.CuGraphDestroy(g)
			}))
			require.NoError(t, s.Synchronize())
		})
	}
}

// TestLaunchDropped tests that a launch keeps its stream, which the program drops with the call.
func TestLaunchDropped(t *testing.T) {
	x := open(t, 0)
	k := kernel(t, x, "nothing")
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	closing(t, g)
	_, err = g.Add(safe.KernelNode(k, one))
	require.NoError(t, err)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	for name, launch := range map[string]func(*safe.Stream) error{
		"kernel":     func(s *safe.Stream) error { return k.Launch(s, one) },
		"executable": exec.Launch,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := safe.NewStream(x)
			require.NoError(t, err)
			unlock, launched := safe.LockStream(s), make(chan error)
			go func() { launched <- launch(s) }()
			time.Sleep(10 * time.Millisecond) // it waits for the stream
			drop()
			unlock()
			assert.NoError(t, <-launched)
		})
	}
}

func TestModules(t *testing.T) {
	x := open(t, 0)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	_, err = m.Kernel("no such kernel")
	assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_FOUND)
	assert.ErrorContains(t, err, "no such kernel")
	assert.ErrorContains(t, err, `; C++ mangles a kernel's name unless it is declared extern "C" or listed in compile.Options.Kernels`)
	if driver.Find("cuLibraryEnumerateKernels") == nil {
		assert.ErrorContains(t, err, "no such kernel: the module has ")
		assert.ErrorContains(t, err, " and others")
	}
	table, err := safe.Global[float32](m, "table")
	require.NoError(t, err)
	require.Equal(t, 4, table.Len())
	require.NoError(t, table.CopyFromHost([]float32{1, 10, 100, 1000}))
	_, err = safe.Global[[3]float32](m, "table")
	assert.ErrorIs(t, err, safe.ErrRange)
	scale, err := m.Kernel("scale")
	require.NoError(t, err)
	s, y := stream(t, x), buffer[float32](t, x, 4)
	require.NoError(t, y.CopyFromHost([]float32{1, 2, 3, 4}))
	require.NoError(t, scale.Launch(s, perValue(4), safe.Val(uint32(4)), y.Arg()))
	got := make([]float32, 4)
	require.NoError(t, y.CopyToHost(got))
	assert.Equal(t, []float32{1, 20, 300, 4000}, got)
	require.NoError(t, m.Close())
	assert.ErrorIs(t, scale.Launch(s, one), safe.ErrClosed)
	require.NoError(t, table.Close())

	_, err = safe.Load(x, []byte(".version 7.0\n.target sm_70\n.address_size 64\nnonsense"))
	require.Error(t, err)
	var e *safe.Error
	require.ErrorAs(t, err, &e)
	t.Log(e.Detail)
	assert.NotEmpty(t, e.Detail, "what the compiler said")
}

// TestNoAllocations tests that frequent calls allocate no Go memory.
func TestNoAllocations(t *testing.T) {
	x := open(t, 0)
	s, other, e, b := stream(t, x), stream(t, x), event(t, x), buffer[float32](t, x, 100)
	h, fill, point := host[float32](t, x, 100), kernel(t, x, "fill"), kernel(t, x, "point")
	pairs, copies := kernel(t, x, "pair"), kernel(t, x, "copy")
	out, p := buffer[float64](t, x, 3), pointStruct{A: 1}
	g, err := s.Capture(func() error { return b.FillAsync(s, 0) })
	require.NoError(t, err)
	closing(t, g)
	exec := executable(t, g)
	temporary, _ := allocating[float32](t, s, 100)
	closing(t, temporary)
	allocates := executable(t, temporary)
	batch := newBatch(t, x)
	require.NoError(t, errors.Join(batch.Launch(pairs, one, safe.Val(pair{A: 1}), out.Arg()), safe.BatchFill(batch, b, 0),
		batch.Record(e), batch.WaitEvent(e), batch.LaunchGraph(exec)))
	cooperative := one
	cooperative.Cooperative = true
	byHand := newGraph(t, x)
	args := func() safe.NodeParams { return safe.KernelNode(pairs, one, safe.Val(pair{A: 1}), out.Arg()) }
	node := addNode(t, byHand, args())
	changed := executable(t, byHand)
	for name, call := range map[string]func() error{
		"record":      func() error { return s.Record(e) },
		"wait event":  func() error { return other.WaitEvent(e) },
		"query":       func() error { _, err := s.Query(); return err },
		"event query": func() error { _, err := e.Query(); return err },
		"launch": func() error {
			return fill.Launch(s, perValue(100), safe.Val(uint32(100)), safe.Val(float32(1)), b.Arg())
		},
		"launch with a struct":   func() error { return pairs.Launch(s, one, safe.Val(pair{A: 1}), out.Arg()) },
		"launch with Ref":        func() error { return point.Launch(s, one, safe.Ref(&p), out.Arg()) },
		"launch with attributes": func() error { return point.Launch(s, cooperative, safe.Ref(&p), out.Arg()) },
		"launch with uses": func() error {
			uses := [2]safe.Arg{b.Arg(), h.Arg()}
			cfg := one
			cfg.Uses = uses[:]
			return pairs.Launch(s, cfg, safe.Val(pair{A: 1}), out.Arg())
		},
		"launch with pointers": func() error {
			return copies.Launch(s, one, safe.PointerArg(b), safe.VoidPointerArg(h), safe.Val(uint32(0)))
		},
		"launch with addresses": func() error {
			var uses [2]safe.Arg
			cfg := one
			to, used := safe.PointerAddress(b, uses[:0])
			from, used := safe.VoidPointerAddress(h, used)
			cfg.Uses = used
			return copies.Launch(s, cfg, safe.Val(to), safe.Val(from), safe.Val(uint32(0)))
		},
		"raw": func() error {
			return s.EnqueueRaw(func(driver.CUstream) error { return nil }, b.Arg(), h.Arg())
		},
		"batch": func() error { return batch.Submit(s) },
		"batch that is changed": func() error {
			return errors.Join(batch.SetLaunch(0, pairs, one, safe.Val(pair{A: 2}), out.Arg()), batch.Submit(s))
		},
		"node":                  func() error { return node.Set(args()) },
		"node of an executable": func() error { return changed.Set(node, args()) },
		"graph":                 func() error { return exec.Launch(s) },
		"graph that allocates":  func() error { return allocates.Launch(s) },
		"copy":                  func() error { return b.CopyFromHostAsync(s, h) },
		"fill":                  func() error { return b.FillAsync(s, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, call())
			assert.Zero(t, testing.AllocsPerRun(200, func() {
				if call() != nil {
					panic(name)
				}
			}))
		})
		require.NoError(t, s.Synchronize())
	}
}
