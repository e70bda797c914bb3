//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// mostOfFill is the most arguments of the launch of a [Copy].
const mostOfFill = 7

// Do enqueues a copy, a memset or a launch, and waits for the stream if c.Wait is set, also after
// an error, but not if it has refused the copy. host is the host side of the copy, or the list
// with the launch.
func (c *Copy) Do(host unsafe.Pointer) driver.CUresult {
	var l list
	l.inHome(Home{Context: c.Home, ID: c.ID}, c.Context)
	l.notLegacy(c.Stream)
	var with hostArgs
	var params [mostOfFill + 1]unsafe.Pointer
	enqueue := l.next()
	switch c.Kind {
	case HostToDevice:
		with = hostArgs{first: uint64(c.Dst), host: host, rest: [8]uint64{c.Size, uint64(c.Stream)}}
		enqueue.set(cu.copyHtoD, unsafe.Pointer(&with.first), 4)
	case DeviceToHost:
		with = hostArgs{host: host, rest: [8]uint64{uint64(c.Src), c.Size, uint64(c.Stream)}}
		enqueue.set(cu.copyDtoH, unsafe.Pointer(&with.host), 4)
	case FillLaunch:
		fn, n := words{(*uint64)(host)}.from(1).launch(&l.call, params[:], c.Stream)
		enqueue.set(fn, unsafe.Pointer(&l.call), n)
	default:
		fn, n := c.onDevice(&l.call.words)
		enqueue.set(fn, unsafe.Pointer(&l.call), n)
	}
	var wait *step
	if c.Wait != 0 {
		wait = l.waitAfter(enqueue, c.Stream)
	}
	r := l.do()
	runtime.KeepAlive(&with)
	runtime.KeepAlive(&params)
	runtime.KeepAlive(host)
	if r != 0 || wait == nil {
		return r
	}
	if enqueue.result != 0 {
		return driver.CUresult(enqueue.result)
	}
	return driver.CUresult(wait.result)
}

// waitAfter waits for the stream if the call has been made, even with an error: a part of
// the copy may be in flight. If the wait fails it waits once more, as the memory must not be
// freed during the copy.
func (l *list) waitAfter(enqueue *step, stream driver.CUstream) *step {
	const notMade = ^uint64(0)
	enqueue.result, enqueue.flags = notMade, anyResult
	l.stream = uint64(stream)
	wait := l.next().set(cu.streamSynchronize, unsafe.Pointer(&l.stream), 1).unless(&enqueue.result, notMade)
	wait.flags = anyResult
	l.next().set(cu.streamSynchronize, unsafe.Pointer(&l.stream), 1).unless(&wait.result, 0).flags = anyResult
	return wait
}

// hostArgs are the arguments of a copy from the host, from first on, or to it, from host on.
type hostArgs struct {
	first uint64
	host  unsafe.Pointer
	rest  [8]uint64
}

// onDevice returns the function of a copy whose host memory is not Go's, or of a memset, and
// the number of its arguments, which it sets.
func (c *Copy) onDevice(words *[9]uint64) (fn uintptr, n int) {
	*words = [9]uint64{uint64(c.Dst), uint64(c.Src), c.Size, uint64(c.Stream)}
	switch c.Kind {
	case HostToDevice:
		return cu.copyHtoD, 4
	case DeviceToHost:
		return cu.copyDtoH, 4
	case DeviceToDevice:
		return cu.copyDtoD, 4
	case HostToHost: // both ends are pinned, so that they have addresses of the device
		return cu.copyHtoH, 4
	case Peer:
		*words = [9]uint64{uint64(c.Dst), uint64(c.DstContext), uint64(c.Src), uint64(c.SrcContext), c.Size, uint64(c.Stream)}
		return cu.copyPeer, 6
	case Set8:
		return cu.set8, 4
	case Set16:
		return cu.set16, 4
	default:
		return cu.set32, 4
	}
}

// Do is cuMemAllocAsync or cuMemAllocFromPoolAsync, and sets a.Address.
func (a *Alloc) Do() driver.CUresult {
	var l list
	l.inHome(a.Home, a.CallContext)
	if a.Captured == 0 && a.Complete == 0 {
		l.notCapturing(a.Stream)
	}
	if a.Pool != 0 {
		l.create(cu.allocFromPool, a.Size, uint64(a.Pool), uint64(a.Stream))
	} else {
		l.create(cu.alloc, a.Size, uint64(a.Stream))
	}
	var query, wait *step
	if a.Complete != 0 {
		l.stream = uint64(a.Stream)
		query = l.next().set(cu.streamQuery, unsafe.Pointer(&l.stream), 1)
		query.flags = anyResult
		wait = l.next().set(cu.streamSynchronize, unsafe.Pointer(&l.stream), 1).unless(&query.result, uint64(driver.CUDA_ERROR_NOT_READY))
		wait.flags = anyResult | unlessEqual
	}
	r := l.do()
	a.Address = driver.CUdeviceptr(l.created)
	if r != 0 || a.Complete == 0 {
		return r
	}
	if r = driver.CUresult(query.result); r == driver.CUDA_ERROR_NOT_READY {
		r = driver.CUresult(wait.result)
	}
	if r != 0 {
		a.Home.Free(a.Address, a.Stream)
	}
	return r
}

// FreeAsync is cuMemFreeAsync, unless the stream is capturing.
func (h Home) FreeAsync(address driver.CUdeviceptr, stream driver.CUstream) driver.CUresult {
	return h.free(address, stream, true)
}

// Free is cuMemFreeAsync on a stream that never captures.
func (h Home) Free(address driver.CUdeviceptr, stream driver.CUstream) driver.CUresult {
	return h.free(address, stream, false)
}

func (h Home) free(address driver.CUdeviceptr, stream driver.CUstream, captures bool) driver.CUresult {
	var l list
	l.inHome(h, h.CallContext)
	if captures {
		l.notCapturing(stream)
	}
	l.add(cu.free, uint64(address), uint64(stream))
	return l.do()
}
