//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// words is a list, or the rest of one. It has no length: a list says how long it is.
type words struct{ first *uint64 }

func (w words) at(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(w.first), 8*uintptr(i)))
}

func (w words) from(i uint32) words { return words{w.at(i)} }

// host returns the host address that word i is.
func (w words) host(i uint32) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(w.at(i))) }

// dims returns the configuration of a kernel from its four words, and the number of arguments.
func (w words) dims() (c driver.CUlaunchConfig, args uint32) {
	d := (*[8]uint32)(unsafe.Pointer(w.first))
	return driver.CUlaunchConfig{
		GridDimX: d[0], GridDimY: d[1], GridDimZ: d[2],
		BlockDimX: d[3], BlockDimY: d[4], BlockDimZ: d[5], SharedMemBytes: d[6],
	}, d[7]
}

// pointInto makes params point to n arguments in a list. Each is its size in words, and its
// value.
func (w words) pointInto(params []unsafe.Pointer, n uint32) {
	for i := range n {
		params[i] = unsafe.Pointer(w.at(1))
		w = w.from(1 + uint32(*w.first))
	}
}

func (w words) launch(stream driver.CUstream) driver.CUresult {
	c, args := w.from(1).dims()
	c.HStream, c.NumAttrs = stream, uint32(*w.at(5))
	if c.NumAttrs > 0 {
		c.Attrs = (*driver.CUlaunchAttribute)(unsafe.Pointer(w.at(6)))
	}
	var usual [usualArgs]unsafe.Pointer
	params := params(&usual, args)
	w.from(6+attributeWords*c.NumAttrs).pointInto(params, args)
	return launch(driver.CUfunction(*w.first), &c, params)
}

func (w words) copy(stream driver.CUstream) driver.CUresult {
	c := Copy{Stream: stream, Kind: CopyKind(*w.at(0)), Dst: driver.CUdeviceptr(*w.at(1)), Src: driver.CUdeviceptr(*w.at(2)), Size: *w.at(3)}
	switch c.Kind {
	case Peer:
		c.DstContext, c.SrcContext = driver.CUcontext(*w.at(4)), driver.CUcontext(*w.at(5))
	case HostToDevice:
		return c.enqueue(w.host(2))
	case DeviceToHost:
		return c.enqueue(w.host(1))
	}
	return c.enqueue(nil)
}

// do makes a call with the arguments at w.
func (c Call) do(w words, stream driver.CUstream) driver.CUresult {
	switch c {
	case LaunchCall:
		return w.launch(stream)
	case CopyCall:
		return w.copy(stream)
	case RecordCall:
		return code(driver.CuEventRecord(driver.CUevent(*w.first), stream))
	case WaitCall:
		return code(driver.CuStreamWaitEvent(stream, driver.CUevent(*w.first), 0))
	case GraphCall:
		return code(driver.CuGraphLaunch(driver.CUgraphExec(*w.first), stream))
	case HostCall:
		return enqueueHost(stream, uintptr(*w.first), int(int32(*w.at(1))))
	default: // NoCall
		return 0
	}
}

// run is [Batch].
func run(context driver.CUcontext, stream driver.CUstream, list *uint64, n int, outside bool) uint64 {
	var s Scope
	if r := s.begin(context, true); r != 0 {
		return uint64(r)
	}
	defer s.end()
	r := checkStream(stream, outside)
	w, done := words{list}, 0
	for ; r == 0 && done < n; done++ {
		h := *w.first
		if r = Call(uint32(h)).do(w.from(1), stream); r != 0 {
			break
		}
		w = w.from(uint32(h >> 32))
	}
	return uint64(done)<<32 | uint64(r)
}

// change is [KernelNodes].
func change(context driver.CUcontext, of uintptr, what NodeCall, n int, list *uint64, nodes *driver.CUgraphNode) uint64 {
	var s Scope
	if r := s.begin(context, true); r != 0 {
		return uint64(r)
	}
	defer s.end()
	var r driver.CUresult
	all := unsafe.Slice(nodes, n)
	w, done := words{list}, 0
	for ; done < n; done++ {
		if r = w.node(what, of, all, done); r != 0 {
			break
		}
		w = w.from(uint32(*w.first))
	}
	return uint64(done)<<32 | uint64(r)
}

// node adds or changes node i of nodes.
func (w words) node(what NodeCall, of uintptr, nodes []driver.CUgraphNode, i int) driver.CUresult {
	c, args := w.from(2).dims()
	ndeps := uint32(*w.first >> 32)
	var near [usualArgs]driver.CUgraphNode
	deps := near[:0]
	for d := range ndeps {
		dep := *w.at(6 + d)
		if dep&sameList != 0 {
			dep = uint64(nodes[dep&^sameList])
		}
		deps = append(deps, driver.CUgraphNode(dep))
	}
	var usual [usualArgs]unsafe.Pointer
	params := params(&usual, args)
	w.from(6+ndeps).pointInto(params, args)
	return what.addOrSet(of, &nodes[i], deps, &driver.CUDA_KERNEL_NODE_PARAMS{
		Func:     driver.CUfunction(*w.at(1)),
		GridDimX: c.GridDimX, GridDimY: c.GridDimY, GridDimZ: c.GridDimZ,
		BlockDimX: c.BlockDimX, BlockDimY: c.BlockDimY, BlockDimZ: c.BlockDimZ,
		SharedMemBytes: c.SharedMemBytes, KernelParams: &params[0],
	})
}
