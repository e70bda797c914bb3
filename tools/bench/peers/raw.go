package main

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// raw is the contestant that calls package driver, with its context current on its thread.
type raw struct {
	ctx    driver.CUcontext
	stream driver.CUstream
	event  driver.CUevent
	memory driver.CUdeviceptr
	host   unsafe.Pointer // pinned: the first half is copied to the device, the second from it

	nothing, three, sixteen, spin, mulby driver.CUfunction

	pin   runtime.Pinner // as long as the process
	node  *rawNode
	chain rawChain
}

func newRaw() *ours {
	runtime.LockOSThread()
	r := &raw{}
	r.open()
	all := map[string]item{
		"event_record":  queued(func() { check(driver.CuEventRecord(r.event, r.stream)) }),
		"event_query":   always(func() { check(driver.CuEventQuery(r.event)) }),
		"stream_query":  always(func() { check(driver.CuStreamQuery(r.stream)) }),
		"launch_0":      queued(func() { launchRaw(r.nothing, r.stream, nil) }),
		"launch_3":      queued(r.launch3),
		"launch_16":     queued(r.launch16),
		"launch_100":    {prepare: r.launches, queue: func(int) int { return 2 }},
		"stream_create": always(func() { check(driver.CuStreamDestroy(newStreamRaw())) }),
		"async_alloc":   queued(r.allocAsync),
		"buf_alloc":     {prepare: r.alloc},
		"h2d":           {prepare: r.copyIn},
		"d2h":           {prepare: r.copyOut},
		"pipe_1m":       lazily(func() func() { return r.pipe(256, 1<<20) }),
		"pipe_16k":      lazily(func() func() { return r.pipe(2048, 16<<10) }),
	}
	for name, it := range r.graphItems() {
		all[name] = it
	}
	floats := unsafe.Slice((*float32)(r.host), largest/4)
	return &ours{
		ready: reply{Ready: "cudabind, package driver"}, items: all,
		idle: func() { check(driver.CuCtxSynchronize()) },
		once: r.once, worker: r.worker,
		check: func() bool { return doubled(floats) },
	}
}

// doubled tells whether a pipeline has multiplied the ones of the first half by 2.
func doubled(floats []float32) bool {
	return floats[largest/8] == 2 && floats[largest/4-1] == 2
}

func (r *raw) open() {
	var device driver.CUdevice
	check(driver.CuInit(0))
	check(driver.CuDeviceGet(&device, 0))
	check(driver.CuDevicePrimaryCtxRetain(&r.ctx, device))
	check(driver.CuCtxSetCurrent(r.ctx))
	r.stream = newStreamRaw()
	check(driver.CuEventCreate(&r.event, driver.CU_EVENT_DISABLE_TIMING))
	check(driver.CuEventRecord(r.event, r.stream))
	var module driver.CUmodule
	image := append(kernels, 0)
	check(driver.CuModuleLoadData(&module, unsafe.Pointer(&image[0])))
	for name, function := range map[string]*driver.CUfunction{
		"nothing": &r.nothing, "three": &r.three, "sixteen": &r.sixteen, "spin": &r.spin, "mulby": &r.mulby,
	} {
		check(driver.CuModuleGetFunction(function, module, ffi.CString(name)))
	}
	check(driver.CuMemAlloc(&r.memory, largest))
	check(driver.CuMemHostAlloc(&r.host, largest, 0))
	floats := unsafe.Slice((*float32)(r.host), largest/4)
	for i := range floats {
		floats[i] = 1
	}
	keepPool(device)
}

// keepPool has the device's default pool keep freed memory: by default each wait for the device
// gives it back to the system.
func keepPool(device driver.CUdevice) {
	var pool driver.CUmemoryPool
	check(driver.CuDeviceGetDefaultMemPool(&pool, device))
	all := uint64(math.MaxUint64)
	check(driver.CuMemPoolSetAttribute(pool, driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, unsafe.Pointer(&all)))
}

func newStreamRaw() (s driver.CUstream) {
	check(driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING))
	return s
}

func launchRaw(f driver.CUfunction, s driver.CUstream, params *unsafe.Pointer) {
	check(driver.CuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, nil))
}

func (r *raw) launch3() {
	address, count, value := r.memory, uint32(1), float32(2)
	params := [...]unsafe.Pointer{unsafe.Pointer(&address), unsafe.Pointer(&count), unsafe.Pointer(&value)}
	launchRaw(r.three, r.stream, &params[0])
}

func (r *raw) launch16() {
	var values [16]uint64
	var params [16]unsafe.Pointer
	for i := range values {
		values[i] = uint64(i)
		params[i] = unsafe.Pointer(&values[i])
	}
	launchRaw(r.sixteen, r.stream, &params[0])
}

func (r *raw) launches(int) func() {
	return func() {
		for range 100 {
			r.launch3()
		}
	}
}

func (r *raw) launchSpin(s driver.CUstream, ns uint64) {
	params := [...]unsafe.Pointer{unsafe.Pointer(&ns)}
	launchRaw(r.spin, s, &params[0])
}

func (r *raw) allocAsync() {
	var p driver.CUdeviceptr
	check(driver.CuMemAllocAsync(&p, 4096, r.stream))
	check(driver.CuMemFreeAsync(p, r.stream))
}

func (r *raw) alloc(size int) func() {
	return func() {
		var p driver.CUdeviceptr
		check(driver.CuMemAlloc(&p, uint64(size)))
		check(driver.CuMemFree(p))
	}
}

func (r *raw) copyIn(size int) func() {
	return func() {
		check(driver.CuMemcpyHtoDAsync(r.memory, r.host, uint64(size), r.stream))
		check(driver.CuStreamSynchronize(r.stream))
	}
}

func (r *raw) copyOut(size int) func() {
	return func() {
		check(driver.CuMemcpyDtoHAsync(r.host, r.memory, uint64(size), r.stream))
		check(driver.CuStreamSynchronize(r.stream))
	}
}

func (r *raw) once(us int) {
	if us == 0 {
		launchRaw(r.nothing, r.stream, nil)
	} else {
		r.launchSpin(r.stream, uint64(us)*1000)
	}
	check(driver.CuStreamSynchronize(r.stream))
}

func (r *raw) worker(w, reps int) (work func(int), end func()) {
	own := make([]driver.CUstream, w)
	for i := range own {
		own[i] = newStreamRaw()
		r.launchSpin(own[i], 1000)
	}
	check(driver.CuCtxSynchronize())
	work = func(i int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		check(driver.CuCtxSetCurrent(r.ctx))
		for range reps {
			r.launchSpin(own[i], 500_000)
			check(driver.CuStreamSynchronize(own[i]))
		}
	}
	return work, func() {
		for _, s := range own {
			check(driver.CuStreamDestroy(s))
		}
	}
}

// pipe copies pieces to the device, doubles them and copies them back, on 8 streams in turns.
func (r *raw) pipe(pieces, size int) func() {
	var own [streams]driver.CUstream
	var at [streams]driver.CUdeviceptr
	for i := range own {
		own[i], at[i] = newStreamRaw(), r.memory+driver.CUdeviceptr(i*size)
	}
	slots, count, factor := largest/2/size, uint32(size/4), float32(2)
	return func() {
		for i := range pieces {
			q, offset := i%streams, i%slots*size
			check(driver.CuMemcpyHtoDAsync(at[q], unsafe.Add(r.host, offset), uint64(size), own[q]))
			address := at[q]
			params := [...]unsafe.Pointer{unsafe.Pointer(&address), unsafe.Pointer(&count), unsafe.Pointer(&factor)}
			check(driver.CuLaunchKernel(r.mulby, (count+255)/256, 1, 1, 256, 1, 1, 0, own[q], &params[0], nil))
			check(driver.CuMemcpyDtoHAsync(unsafe.Add(r.host, largest/2+offset), at[q], uint64(size), own[q]))
		}
		for _, s := range own {
			check(driver.CuStreamSynchronize(s))
		}
	}
}
