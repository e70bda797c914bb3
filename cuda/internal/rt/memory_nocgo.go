//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Do enqueues a copy or memset, and waits for the stream if c.Wait is set. host is the
// host side of the copy.
func (c *Copy) Do(host unsafe.Pointer) driver.CUresult {
	var s Scope
	if r := s.beginHome(Home{Context: c.Home, ID: c.ID}, c.Context); r != 0 {
		return r
	}
	defer s.end()
	r := checkLegacy(c.Stream)
	if r == 0 {
		r = c.enqueue(host)
	}
	if c.Wait == 0 {
		return r
	}
	// Even after an error: a part of the copy may be in flight.
	w := code(driver.CuStreamSynchronize(c.Stream))
	if w != 0 {
		_ = driver.CuStreamSynchronize(c.Stream) // the memory must not be freed during the copy
	}
	if r != 0 {
		return r
	}
	return w
}

// enqueue enqueues the copy or memset in the current context.
func (c *Copy) enqueue(host unsafe.Pointer) driver.CUresult {
	switch c.Kind {
	case HostToDevice:
		return code(driver.CuMemcpyHtoDAsync(c.Dst, host, c.Size, c.Stream))
	case DeviceToHost:
		return code(driver.CuMemcpyDtoHAsync(host, c.Src, c.Size, c.Stream))
	case DeviceToDevice:
		return code(driver.CuMemcpyDtoDAsync(c.Dst, c.Src, c.Size, c.Stream))
	case Peer:
		return code(driver.CuMemcpyPeerAsync(c.Dst, c.DstContext, c.Src, c.SrcContext, c.Size, c.Stream))
	case HostToHost: // both ends are pinned, so that they have addresses of the device
		return code(driver.CuMemcpyAsync(c.Dst, c.Src, c.Size, c.Stream))
	case Set8:
		return code(driver.CuMemsetD8Async(c.Dst, uint8(c.Src), c.Size, c.Stream))
	case Set16:
		return code(driver.CuMemsetD16Async(c.Dst, uint16(c.Src), c.Size, c.Stream))
	default:
		return code(driver.CuMemsetD32Async(c.Dst, uint32(c.Src), c.Size, c.Stream))
	}
}

// Do is cuMemAllocAsync or cuMemAllocFromPoolAsync, and sets a.Address.
func (a *Alloc) Do() driver.CUresult {
	var s Scope
	if r := s.beginHome(a.Home, a.CallContext); r != 0 {
		return r
	}
	defer s.end()
	if a.Captured == 0 && a.Complete == 0 {
		if r := checkCapturing(a.Stream); r != 0 {
			return r
		}
	}
	return a.allocate()
}

func (a *Alloc) allocate() (r driver.CUresult) {
	if a.Pool != 0 {
		r = code(driver.CuMemAllocFromPoolAsync(&a.Address, a.Size, a.Pool, a.Stream))
	} else {
		r = code(driver.CuMemAllocAsync(&a.Address, a.Size, a.Stream))
	}
	if r != 0 || a.Complete == 0 {
		return r
	}
	if r = code(driver.CuStreamQuery(a.Stream)); r == driver.CUDA_ERROR_NOT_READY {
		r = code(driver.CuStreamSynchronize(a.Stream))
	}
	if r != 0 {
		_ = driver.CuMemFreeAsync(a.Address, a.Stream)
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
	var s Scope
	if r := s.beginHome(h, h.CallContext); r != 0 {
		return r
	}
	defer s.end()
	if captures {
		if r := checkCapturing(stream); r != 0 {
			return r
		}
	}
	return code(driver.CuMemFreeAsync(address, stream))
}
