//go:build (linux && (amd64 || arm64) && (cgo || cudabind_nocgo)) || (windows && amd64)

package driver_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArguments calls with arguments of every kind; the fake driver says what
// arrived.
func TestArguments(t *testing.T) {
	onFake(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			call func() error
			want string
		}{
			{"a struct of 64 bytes", func() error {
				var memory driver.CUdeviceptr
				handle := driver.CUipcMemHandle{Reserved: [64]byte([]byte(strings.Repeat("sixty-four bytes", 4)))}
				err := driver.CuIpcOpenMemHandle_v2(&memory, handle, 1)
				assert.EqualValues(t, uint64(0xfeedfacecafebeef), memory)
				return err
			}, strings.Repeat("sixty-four bytes", 4) + " 1"},
			{"a struct between others", func() error {
				return driver.CuMemPrefetchAsync_v2(0x123456789abc, 1<<40, onDevice(-7), 8, 0xabc0)
			}, "0x123456789abc 1099511627776 {1 -7} 8 0xabc0"},
			{"a struct at the end", func() error {
				return driver.CuMemAdvise_v2(0x123456789abc, 1<<40, driver.CU_MEM_ADVISE_SET_ACCESSED_BY, onDevice(9))
			}, "0x123456789abc 1099511627776 5 {1 9}"},
			{"a float", func() error { return driver.CuParamSetf(0x10, -4, 1.5) }, "0x10 -4 1.5"},
			{"a byte", func() error { return driver.CuMemsetD2D8(0x10, 1<<33, 200, 3, 1<<34) }, "0x10 8589934592 200 3 17179869184"},
			{"a short", func() error { return driver.CuMemsetD16(0x10, 60000, 1<<35) }, "0x10 60000 34359738368"},
			{"a string", func() error {
				var function driver.CUfunction
				err := driver.CuModuleGetFunction(&function, 0x100, ffi.CString("saxpy"))
				assert.EqualValues(t, 0x105, function)
				return err
			}, "0x100 saxpy"},
			{"15 arguments", encodeIm2col, "6 4 0xdead00 {11 12} {13} {-14} {-15} 16 17 {18 19} 1 2 3 1"},
			{"kernel parameters", launch, "0xf0 {1 2 3} {4 5 6} 7 0x2 (-8 0.25 -32000)"},
			{"packed kernel parameters", launchPacked, "extra 0x1 2 0"},
		} {
			t.Run(c.name, func(t *testing.T) {
				require.NoError(t, c.call())
				assert.Equal(t, c.want, said(t))
			})
		}
	})
}

func onDevice(id int32) driver.CUmemLocation {
	location := driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE}
	*location.Id() = id
	return location
}

func encodeIm2col() error {
	tensors := driver.NewCUtensorMap()
	dim, strides := [2]uint64{11, 12}, [1]uint64{13}
	lower, upper := [1]int32{-14}, [1]int32{-15}
	element := [2]uint32{18, 19}
	err := driver.CuTensorMapEncodeIm2col(tensors, driver.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, deviceAddress(0xdead00), &dim[0], &strides[0], &lower[0], &upper[0],
		16, 17, &element[0], driver.CU_TENSOR_MAP_INTERLEAVE_16B, driver.CU_TENSOR_MAP_SWIZZLE_64B, driver.CU_TENSOR_MAP_L2_PROMOTION_L2_256B, driver.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
	if err == nil && tensors.Opaque[15] != 4 {
		return fmt.Errorf("the tensor map holds %d at its end", tensors.Opaque[15])
	}
	return err
}

// deviceAddress is device memory where the binding wants a pointer.
func deviceAddress(p driver.CUdeviceptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}

// launch passes an array of pointers, all of it on the Go stack.
func launch() error {
	count, factor, short := int32(-8), 0.25, int16(-32000)
	pointer := &short
	params := [...]unsafe.Pointer{unsafe.Pointer(&count), unsafe.Pointer(&factor), unsafe.Pointer(&pointer)}
	return driver.CuLaunchKernel(0xf0, 1, 2, 3, 4, 5, 6, 7, driver.CU_STREAM_PER_THREAD, &params[0], nil)
}

func launchPacked() error {
	size := new(uint64(2))
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(size)
	extra := [...]uintptr{1, uintptr(unsafe.Pointer(size)), 0}
	return driver.CuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, nil, &extra[0])
}

func TestResults(t *testing.T) {
	onFake(t, func(t *testing.T) {
		var name *byte
		require.NoError(t, driver.CuGetErrorName(driver.CUDA_ERROR_OUT_OF_MEMORY, &name))
		assert.Equal(t, driver.CUDA_ERROR_OUT_OF_MEMORY.String(), ffi.GoString(name))
		assert.Equal(t, driver.CUDA_ERROR_INVALID_VALUE, driver.CuGetErrorName(4242, &name))
		assert.Nil(t, name)

		var buffer [16]byte
		require.NoError(t, driver.CuDeviceGetName(&buffer[0], int32(len(buffer)), 12345))
		assert.Equal(t, "fake device 123\x00", string(buffer[:]), "cut to what fits")

		var bytes uint64
		require.NoError(t, driver.CuDeviceTotalMem(&bytes, 5))
		assert.Equal(t, uint64(1)<<40|5, bytes)
	})
}

func TestStatusIsError(t *testing.T) {
	onFake(t, func(t *testing.T) {
		require.NoError(t, driver.CuInit(0), "success is nil")
		for _, code := range []driver.CUresult{
			driver.CUDA_ERROR_INVALID_VALUE, driver.CUDA_ERROR_OUT_OF_MEMORY, driver.CUDA_ERROR_NOT_READY, driver.CUDA_ERROR_UNKNOWN,
			17, 1000, 4242, math.MaxInt32, math.MaxUint32,
		} {
			err := driver.CuInit(uint32(code))
			assert.ErrorIs(t, err, code)
			assert.ErrorIs(t, fmt.Errorf("wrapped: %w", err), code)
			var got driver.CUresult
			require.ErrorAs(t, err, &got)
			assert.Equal(t, code, got)
			assert.NotErrorIs(t, err, driver.CUDA_ERROR_NO_DEVICE)
		}
	})
}

// TestStreamHandlesOnStack: two stream handles are the numbers 1 and 2, which
// Go takes for broken pointers when it finds them as such on a stack it moves.
func TestStreamHandlesOnStack(t *testing.T) {
	onFake(t, func(t *testing.T) {
		done := make(chan struct{})
		go func() { // a small stack
			defer close(done)
			deep(t, 2000)
		}()
		<-done
	})
}

// deep calls with results on the stack, and then again from deeper inside.
func deep(t *testing.T, depth int) {
	streams := [...]driver.CUstream{driver.CU_STREAM_LEGACY, driver.CU_STREAM_PER_THREAD}
	var attribute int32
	var ids [2]uint64
	err := driver.CuDeviceGetAttribute(&attribute, driver.CUdevice_attribute(depth), 7)
	if depth > 0 {
		deep(t, depth-1)
	}
	if depth%500 == 0 {
		runtime.GC()
	}
	for i, s := range streams {
		if e := driver.CuStreamGetId(s, &ids[i]); e != nil {
			err = e
		}
	}
	if err != nil || attribute != int32(depth*1000+7) || ids != [2]uint64{1, 2} {
		t.Errorf("depth %d: %v, attribute %d, ids %v", depth, err, attribute, ids)
	}
}

// TestFirstCallMovesStack makes first calls, which look the function up, on
// stacks that are too small for that: the results' places move meanwhile.
func TestFirstCallMovesStack(t *testing.T) {
	onFake(t, func(t *testing.T) {
		moved := 0
		for i, want := range []int32{11, 12040, 101, 3004, 12, 13, 14, 15, -16} {
			got := make(chan firstResult)
			go func() { got <- atDepth(i+firstDepth, i) }()
			r := <-got
			require.NoError(t, r.err)
			assert.Equal(t, want, r.value, "function %d", i)
			if r.moved {
				moved++
			}
		}
		assert.NotZero(t, moved, "no stack moved: the test shows nothing")
	})
}

// firstDepth is deeper where a stack begins larger.
var firstDepth = map[string]int{"windows": 9}[runtime.GOOS]

type firstResult struct {
	value int32
	err   error
	moved bool
}

// atDepth calls function i with some of the stack used up.
//
//go:noinline
func atDepth(depth, i int) firstResult {
	var pad [160]byte
	pad[depth] = 1
	var r firstResult
	if depth == 0 {
		r = firstCall(i)
	} else {
		r = atDepth(depth-1, i)
	}
	runtime.KeepAlive(&pad)
	return r
}

// firstCall has its result on the stack, since it calls no function by way of a
// variable.
func firstCall(i int) firstResult {
	var out int32
	var err error
	before := uintptr(unsafe.Pointer(&out))
	switch i {
	case 0:
		err = driver.CuDeviceGetCount(&out)
	case 1:
		err = driver.CuDriverGetVersion(&out)
	case 2:
		err = driver.CuDeviceGet((*driver.CUdevice)(&out), 1)
	case 3:
		err = driver.CuDeviceGetAttribute(&out, 3, 4)
	case 4:
		err = driver.CuCtxGetDevice((*driver.CUdevice)(&out))
	case 5:
		err = driver.CuCtxGetFlags((*driver.CUctx_flags)(unsafe.Pointer(&out)))
	case 6:
		err = driver.CuCtxGetApiVersion(0, (*uint32)(unsafe.Pointer(&out)))
	case 7:
		err = driver.CuStreamGetFlags(1, (*driver.CUstream_flags)(unsafe.Pointer(&out)))
	case 8:
		err = driver.CuStreamGetPriority(2, &out)
	}
	return firstResult{out, err, uintptr(unsafe.Pointer(&out)) != before}
}

func TestCallsAllocateNothing(t *testing.T) {
	onFake(t, func(t *testing.T) {
		for name, call := range map[string]func() error{
			"result on the stack": func() error {
				var count int32
				return driver.CuDeviceGetCount(&count)
			},
			"done":              func() error { return driver.CuStreamQuery(0) },
			"not ready":         func() error { return driver.CuStreamQuery(600) },
			"fatal":             func() error { return driver.CuStreamQuery(999) },
			"kernel parameters": launch,
			"struct":            func() error { return driver.CuMemAdvise_v2(1, 2, 3, onDevice(4)) },
		} {
			var err error
			assert.Zero(t, testing.AllocsPerRun(100, func() { err = call() }), name)
			runtime.KeepAlive(err)
		}
	})
}
