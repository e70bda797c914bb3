//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Options of the driver's compiler, the linker, lazy loading. Runs on any driver.

package safe_test

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const head = ".version 7.0\n.target sm_70\n.address_size 64\n"

const storePTX = head + `
.visible .entry store(.param .u64 store_to, .param .u64 store_value)
{
	.reg .b64 to, value;

	ld.param.u64 to, [store_to];
	ld.param.u64 value, [store_value];
	cvta.to.global.u64 to, to;
	st.global.u64 [to], value;
	ret;
}
`

const nothingPTX = head + ".visible .entry nothing()\n{\n\tret;\n}\n"

func linker(t testing.TB, x *safe.Context, o safe.LoadOptions) *safe.Linker {
	t.Helper()
	l, err := safe.NewLinker(x, o)
	require.NoError(t, err)
	closing(t, l)
	return l
}

func TestLoadOptions(t *testing.T) {
	x := open(t, 0)
	image, err := os.ReadFile("testdata/kernels.ptx")
	require.NoError(t, err)
	var log string
	for _, c := range []struct {
		name string
		o    safe.LoadOptions
	}{
		{"nothing", safe.LoadOptions{}},
		{"registers", safe.LoadOptions{MaxRegisters: 32}},
		{"threads", safe.LoadOptions{ThreadsPerBlock: 128}},
		{"no optimization", safe.LoadOptions{Optimization: safe.NoOptimization}},
		{"level", safe.LoadOptions{Optimization: 3, LineInfo: true}},
		{"debugging", safe.LoadOptions{DebugInfo: true, Optimization: safe.NoOptimization}},
		{"cache", safe.LoadOptions{CacheMode: driver.CU_JIT_CACHE_OPTION_CG}},
		{"log", safe.LoadOptions{Log: true}},
		{"more", safe.LoadOptions{More: map[driver.CUjit_option]uintptr{driver.CU_JIT_FALLBACK_STRATEGY: uintptr(driver.CU_PREFER_BINARY)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := safe.LoadWith(x, image, c.o)
			require.NoError(t, err)
			closing(t, m)
			k, err := m.Kernel("fill")
			require.NoError(t, err)
			s, b := stream(t, x), buffer[float32](t, x, 100)
			require.NoError(t, k.Launch(s, perValue(100), safe.Val(uint32(100)), safe.Val(float32(2)), b.Arg()))
			got := make([]float32, 100)
			require.NoError(t, b.CopyToHost(got))
			assert.EqualValues(t, 2, got[99])
			used, err := k.Attribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS)
			require.NoError(t, err)
			if c.o.MaxRegisters > 0 {
				assert.LessOrEqual(t, used, c.o.MaxRegisters)
			}
		})
	}
	t.Log(log)
	for _, c := range []struct {
		name string
		o    safe.LoadOptions
		want error
	}{
		{"registers", safe.LoadOptions{MaxRegisters: -1}, safe.ErrRange},
		{"threads", safe.LoadOptions{ThreadsPerBlock: 1 << 20}, safe.ErrRange},
		{"level", safe.LoadOptions{Optimization: 5}, safe.ErrRange},
		{"both", safe.LoadOptions{ThreadsPerBlock: 32, Target: driver.CU_TARGET_COMPUTE_75}, safe.ErrInvalidArgument},
	} {
		t.Run("wrong "+c.name, func(t *testing.T) {
			_, err := safe.LoadWith(x, image, c.o)
			assert.ErrorIs(t, err, c.want)
			_, err = safe.NewLinker(x, c.o)
			assert.ErrorIs(t, err, c.want)
		})
	}
	var e *safe.Error
	_, err = safe.LoadWith(x, []byte(head+"nonsense"), safe.LoadOptions{Log: true})
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "Load", e.Op)
	assert.NotEmpty(t, e.Detail)
}

// TestLoadNames finds kernels and variables by names that the image does not have.
func TestLoadNames(t *testing.T) {
	x := open(t, 0)
	image, err := os.ReadFile("testdata/kernels.ptx")
	require.NoError(t, err)
	names := map[string]string{"fill<float>": "fill", "nothing": "none"}
	m, err := safe.LoadWith(x, image, safe.LoadOptions{Names: names})
	require.NoError(t, err)
	closing(t, m)
	clear(names) // the module has its own
	k, err := m.Kernel("fill<float>")
	require.NoError(t, err)
	assert.Equal(t, "fill<float>", k.Name())
	s, b := stream(t, x), buffer[float32](t, x, 100)
	require.NoError(t, k.Launch(s, perValue(100), safe.Val(uint32(100)), safe.Val(float32(2)), b.Arg()))
	require.NoError(t, s.Synchronize())
	_, err = m.Kernel("fill")
	require.NoError(t, err, "by its symbol")
	_, err = m.Kernel("nothing")
	assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_FOUND, "the image has no such symbol")
}

// TestLink links two pieces of PTX to one image.
func TestLink(t *testing.T) {
	x := open(t, 0)
	l := linker(t, x, safe.LoadOptions{Log: true, MaxRegisters: 64})
	require.NoError(t, l.Add(driver.CU_JIT_INPUT_PTX, "store", []byte(storePTX)))
	require.NoError(t, l.Add(driver.CU_JIT_INPUT_PTX, "nothing", []byte(nothingPTX+"\x00")))
	image, err := l.Complete()
	require.NoError(t, err)
	require.NotEmpty(t, image)
	t.Logf("%d bytes; %s", len(image), l.Log())
	_, err = l.Complete()
	assert.ErrorIs(t, err, safe.ErrClosed, "once")
	assert.ErrorIs(t, l.Add(driver.CU_JIT_INPUT_PTX, "more", []byte(nothingPTX)), safe.ErrClosed)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())

	m, err := safe.Load(x, image)
	require.NoError(t, err)
	closing(t, m)
	_, err = m.Kernel("nothing")
	require.NoError(t, err)
	k, err := m.Kernel("store")
	require.NoError(t, err)
	s, b := stream(t, x), buffer[uint64](t, x, 1)
	require.NoError(t, k.Launch(s, one, b.Arg(), safe.Val(uint64(7))))
	got := make([]uint64, 1)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 7, got[0])
}

func TestLinkErrors(t *testing.T) {
	x := open(t, 0)
	for _, c := range []struct {
		name string
		kind driver.CUjitInputType
		data string
		log  bool
	}{
		{"PTX", driver.CU_JIT_INPUT_PTX, head + "nonsense", true},
		{"cubin", driver.CU_JIT_INPUT_CUBIN, strings.Repeat("nonsense", 100), false},
		{"fatbin", driver.CU_JIT_INPUT_FATBINARY, strings.Repeat("nonsense", 100), false},
		{"object", driver.CU_JIT_INPUT_OBJECT, strings.Repeat("nonsense", 100), false},
		{"library", driver.CU_JIT_INPUT_LIBRARY, strings.Repeat("nonsense", 100), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := linker(t, x, safe.LoadOptions{})
			err := l.Add(c.kind, c.name, []byte(c.data))
			if err == nil {
				_, err = l.Complete()
			}
			var e *safe.Error
			require.ErrorAs(t, err, &e)
			assert.NotZero(t, e.Code)
			t.Log(err)
			if c.log {
				assert.NotEmpty(t, e.Detail, "what the compiler said")
			}
			_, err = l.Complete()
			assert.ErrorIs(t, err, safe.ErrClosed, "a failure is the end")
		})
	}
	twice := linker(t, x, safe.LoadOptions{})
	require.NoError(t, twice.Add(driver.CU_JIT_INPUT_PTX, "one", []byte(nothingPTX)))
	err := twice.Add(driver.CU_JIT_INPUT_PTX, "two", []byte(nothingPTX))
	if err == nil {
		_, err = twice.Complete()
	}
	var e *safe.Error
	require.ErrorAs(t, err, &e)
	assert.NotEmpty(t, e.Detail)
	assert.ErrorIs(t, linker(t, x, safe.LoadOptions{}).Add(driver.CU_JIT_INPUT_CUBIN, "empty", nil), safe.ErrInvalidArgument)
}

// TestLinkerOnThreads: each call may come from another thread. The driver crashes if its own calls do.
func TestLinkerOnThreads(t *testing.T) {
	x := open(t, 0)
	threads := make([]chan func(), 4)
	for i := range threads {
		calls := make(chan func())
		go func() {
			runtime.LockOSThread()
			for call := range calls {
				call()
			}
		}()
		defer close(calls)
		threads[i] = calls
	}
	on := func(i int, f func() error) {
		done := make(chan error)
		threads[i%4] <- func() { done <- f() }
		require.NoError(t, <-done)
	}
	for i := range 20 {
		var l *safe.Linker
		on(i, func() (err error) { l, err = safe.NewLinker(x, safe.LoadOptions{}); return err })
		on(i+1, func() error { return l.Add(driver.CU_JIT_INPUT_PTX, "nothing", []byte(nothingPTX)) })
		on(i+2, func() error { _, err := l.Complete(); return err })
		on(i+3, l.Close)
	}
}

func TestLinkerClosed(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	l, err := safe.NewLinker(x, safe.LoadOptions{})
	require.NoError(t, err)
	require.NoError(t, x.Close(), "before the linker")
	require.NoError(t, l.Add(driver.CU_JIT_INPUT_PTX, "nothing", []byte(nothingPTX)))
	require.NoError(t, l.Close())
	calls := func(x *safe.Context, l *safe.Linker) map[string]func() error {
		return map[string]func() error{
			"NewLinker":       func() error { _, err := safe.NewLinker(x, safe.LoadOptions{}); return err },
			"Load":            func() error { _, err := safe.Load(x, []byte(nothingPTX)); return err },
			"Linker.Add":      func() error { return l.Add(driver.CU_JIT_INPUT_PTX, "", []byte(nothingPTX)) },
			"Linker.Complete": func() error { _, err := l.Complete(); return err },
		}
	}
	refusedAll(t, calls(x, l))
	refusedAll(t, calls(nil, nil))
	refusedAll(t, calls(&safe.Context{}, &safe.Linker{}))
	for _, v := range []*safe.Linker{nil, {}} {
		assert.NoError(t, v.Close())
	}
	y := open(t, 0)
	_, err = safe.NewLinker(y, safe.LoadOptions{}) // dropped
	require.NoError(t, err)
	drop()
}

func TestModuleKernels(t *testing.T) {
	x := open(t, 0)
	m, err := safe.Load(x, []byte(storePTX+strings.TrimPrefix(nothingPTX, head)))
	require.NoError(t, err)
	closing(t, m)
	kernels, err := m.Kernels()
	if driver.Find("cuLibraryEnumerateKernels") != nil {
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		return
	}
	require.NoError(t, err)
	var names []string
	for _, k := range kernels {
		names = append(names, k.Name())
		if k.Name() == "store" {
			sizes, err := k.Parameters()
			require.NoError(t, err)
			assert.Equal(t, []int{8, 8}, sizes)
		}
		if k.Name() == "nothing" {
			s := stream(t, x)
			require.NoError(t, k.Launch(s, one))
			require.NoError(t, s.Synchronize())
		}
	}
	slices.Sort(names)
	assert.Equal(t, []string{"nothing", "store"}, names)
}
