//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asMain says in the environment of a process which of mains it is.
const asMain = "SIMDRIVER_TEST_MAIN"

// tests are what Main runs.
type tests func() error

func (t tests) Run() int {
	if err := t(); err != nil {
		fmt.Println(err)
		return 3
	}
	fmt.Println("passed")
	return 0
}

// mains call Main as the TestMain of a program would.
var mains = map[string]func() int{
	"kernels": func() int {
		return sim.Main(tests(func() error { return stores("add", 7) }), sim.Kernel("add", func(_ sim.Grid, a []int32) { a[0] += 7 }))
	},
	"unknown":   func() int { return sim.Main(tests(func() error { return stores("add", 0) })) },
	"empty":     func() int { return sim.Main(tests(func() error { return stores("add", 0) }), sim.EmptyKernels()) },
	"no kernel": func() int { return sim.Main(tests(func() error { return nil }), sim.Kernel("add", 1)) },
	"fails":     func() int { return sim.Main(tests(func() error { return errors.New("wrong") })) },
	"violates": func() int {
		return sim.Main(tests(func() error {
			_ = stores("add", 0)
			return driver.CuMemFree(1 << 40)
		}))
	},
	"older driver": func() int {
		return sim.Main(tests(func() error {
			var m driver.CUlibrary
			err := errors.Join(driver.CuInit(0), driver.CuLibraryLoadData(&m, code(12), nil, nil, 0, nil, nil, 0))
			if newer := driver.CuLibraryLoadData(&m, code(13), nil, nil, 0, nil, nil, 0); newer != driver.CUDA_ERROR_INVALID_IMAGE {
				return fmt.Errorf("code of CUDA 13: %w", newer)
			}
			sim.Control{}.Reset()
			return err
		}))
	},
	"compiler": func() int {
		return sim.Main(tests(func() error {
			var major, minor int32
			return errors.Join(nvrtc.NvrtcVersion(&major, &minor), driver.CuInit(0))
		}))
	},
}

// code is machine code without kernels, of a compiler of a major version of CUDA.
func code(major byte) unsafe.Pointer {
	image := make([]byte, 128)
	copy(image, "\x7fELF\x02\x01\x01")
	image[8] = major - 5             // the version of the ABI
	image[0x12] = 190                // the machine
	image[0x28] = 64                 // where the sections are told
	image[0x3a], image[0x3c] = 64, 1 // the size and number of what tells one
	return unsafe.Pointer(&image[0])
}

// stores launches a kernel, and returns an error unless it stores the value.
func stores(name string, want int32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var device driver.CUdevice
	var c driver.CUcontext
	var m driver.CUmodule
	var f driver.CUfunction
	var p driver.CUdeviceptr
	var got int32
	image := append([]byte(".version 7.0\n.target sm_70\n.address_size 64\n"+entry(name, ".u64")), 0)
	err := errors.Join(driver.CuInit(0), driver.CuDeviceGet(&device, 0), driver.CuDevicePrimaryCtxRetain(&c, device), driver.CuCtxSetCurrent(c),
		driver.CuModuleLoadData(&m, unsafe.Pointer(&image[0])), driver.CuModuleGetFunction(&f, m, unsafe.StringData(name+"\x00")),
		driver.CuMemAlloc(&p, 4), driver.CuMemsetD8(p, 0, 4), run(f, 0, unsafe.Pointer(&p)),
		driver.CuMemcpyDtoH(unsafe.Pointer(&got), p, 4))
	if err == nil && got != want {
		err = fmt.Errorf("the kernel stored %d", got)
	}
	return err
}

func TestMainOfTests(t *testing.T) {
	for _, c := range []struct {
		name string
		exit int
		says string
	}{
		{"kernels", 0, "passed\n"},
		{"unknown", 1, "kernel add is not registered"},
		{"empty", 0, "passed\n"},
		{"no kernel", 1, `kernel "add": int is not a function`},
		{"fails", 3, "wrong\n"},
		{"violates", 1, "simulated driver: "},
		{"compiler", 0, "passed\n"},
		{"older driver", 0, "passed\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), asMain+"="+c.name, "CUDABIND_REQUIRE_GPU=", "CUDABIND_SIM_DRIVER=")
			if c.name == "older driver" {
				child.Env = append(child.Env, "CUDABIND_SIM_DRIVER=12.4")
			}
			out, err := child.CombinedOutput()
			require.NotNil(t, child.ProcessState, "%v", err)
			assert.Equal(t, c.exit, child.ProcessState.ExitCode(), "%s", out)
			assert.Contains(t, string(out), c.says)
		})
	}
}

// TestImagesOfFiles loads images from files.
func TestImagesOfFiles(t *testing.T) {
	primary(t, 0)
	file := filepath.Join(t.TempDir(), "three.ptx")
	require.NoError(t, os.WriteFile(file, []byte(".version 7.0\n.target sm_70\n.address_size 64\n"+entry("three", ".u64", ".u32", ".f32")), 0o666))
	path, none := unsafe.StringData(file+"\x00"), unsafe.StringData(file+"no\x00")

	var m driver.CUmodule
	var f driver.CUfunction
	assert.ErrorIs(t, driver.CuModuleLoad(&m, none), driver.CUDA_ERROR_FILE_NOT_FOUND)
	require.NoError(t, driver.CuModuleLoad(&m, path))
	require.NoError(t, driver.CuModuleGetFunction(&f, m, unsafe.StringData("three\x00")))
	var name *byte
	require.NoError(t, driver.CuFuncGetName(&name, f))
	assert.Equal(t, "three\x00", unsafe.String(name, 6))
	require.NoError(t, driver.CuModuleUnload(m))

	var l driver.CUlibrary
	assert.ErrorIs(t, driver.CuLibraryLoadFromFile(&l, none, nil, nil, 0, nil, nil, 0), driver.CUDA_ERROR_FILE_NOT_FOUND)
	require.NoError(t, driver.CuLibraryLoadFromFile(&l, path, nil, nil, 0, nil, nil, 0))
	var k driver.CUkernel
	require.NoError(t, driver.CuLibraryGetKernel(&k, l, unsafe.StringData("three\x00")))
	require.NoError(t, driver.CuLibraryUnload(l))
}

// TestPlainCopies copies by the calls that take any address.
func TestPlainCopies(t *testing.T) {
	primary(t, 0)
	var host unsafe.Pointer
	require.NoError(t, driver.CuMemAllocHost(&host, 12))
	copied := unsafe.Slice((*byte)(host), 12)
	p := memory(t, 12)
	require.NoError(t, driver.CuMemsetD8(p, 7, 12))
	require.NoError(t, driver.CuMemcpy(driver.CUdeviceptr(uintptr(host)), p, 12))
	assert.Equal(t, []byte{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}, copied)
	copied[1] = 9
	require.NoError(t, driver.CuMemcpy(p, driver.CUdeviceptr(uintptr(host)), 2))
	clear(copied)

	box := driver.CUDA_MEMCPY3D{SrcMemoryType: driver.CU_MEMORYTYPE_DEVICE, SrcDevice: p, SrcPitch: 6, DstMemoryType: driver.CU_MEMORYTYPE_HOST,
		DstHost: host, DstPitch: 2, WidthInBytes: 2, Height: 2, Depth: 1}
	require.NoError(t, driver.CuMemcpy3D(&box))
	assert.Equal(t, []byte{7, 9, 7, 7, 0, 0}, copied[:6])
	require.NoError(t, driver.CuMemFreeHost(host))
}

// userModule makes a module with a test that sim.Main runs, and returns a function that runs go there.
func userModule(t *testing.T) func(env string, args ...string) string {
	dir := t.TempDir()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"go.sum":       string(sum),
		"go.mod":       "module user\n\ngo 1.25\n\nrequire github.com/cudabind/cudabind v0.0.0\n\nreplace github.com/cudabind/cudabind => " + root + "\n",
		"user_test.go": "package user\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n\t\"github.com/cudabind/cudabind/tools/simdriver/sim\"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(sim.Main(m)) }\n\nfunc Test(t *testing.T) {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	return func(env string, args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "CUDABIND_REQUIRE_GPU=", "CUDABIND_SIM_DRIVER=", asMain+"=", env)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v:\n%s", args, out)
		return string(out)
	}
}

// TestVendored: go mod vendor takes the C sources along.
func TestVendored(t *testing.T) {
	run := userModule(t)
	for _, args := range [][]string{{"mod", "tidy"}, {"mod", "vendor"}, {"test", "-mod=vendor", "."}} {
		run("", args...)
	}
}

// TestCached: go test keeps results, but not where a variable has changed that Main or the driver reads.
func TestCached(t *testing.T) {
	run := userModule(t)
	run("", "mod", "tidy")
	run("", "test", ".")
	assert.Contains(t, run("", "test", "."), "(cached)")
	assert.NotContains(t, run("CUDABIND_SIM_DRIVER=12.4", "test", "."), "(cached)")
	assert.NotContains(t, run("CUDABIND_SIM_DEVICES=1", "test", "."), "(cached)")
	assert.NotContains(t, run("CUDABIND_REQUIRE_GPU=1", "test", "."), "(cached)")
	assert.Contains(t, run("", "test", "."), "(cached)")
}
