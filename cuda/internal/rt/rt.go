package rt

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Codes that calls of this package return besides CUDA's.
const (
	CodeCapturing driver.CUresult = 100000 // not done: the stream is capturing
	CodeReset     driver.CUresult = 100001 // not done: the context was reset
	CodeCaptured  driver.CUresult = 100002 // the event was recorded as part of a capture
	CodeCallback  driver.CUresult = 100003 // not done: see InCallback
)

// The driver's thread calls these with the tokens of [HostFunc] and [AddCallback].
// Package safe sets them before it uses either.
var (
	OnHostFunc func(token uintptr)
	OnStatus   func(token uintptr, code driver.CUresult)
)

// Mode says how [Enter] prepares the thread.
type Mode uint32

// The modes of [Enter].
const (
	OwnMode Mode = iota // the thread keeps its capture mode
	Relaxed             // its capture mode becomes RELAXED
	Foreign             // Relaxed, and calls of this package return CodeCallback until Leave
)

// Scope is the state of the thread before [Enter].
type Scope struct {
	before    uintptr
	mode, set uint32
	Status    uint32 // 1 + the stream's driver.CUstreamCaptureStatus, 0 if there is none
}

// Arg is an argument of a kernel. It has four words, which Go keeps in registers.
type Arg struct {
	Pointer unsafe.Pointer // to the value if Far; else depends on the kind
	Tag     uint64         // the size in the upper half, an ArgKind in the lower
	A, B    uint64         // the value, unless Far
}

// ArgKind is the kind of an [Arg]. Package safe has further kinds, which must not reach
// C.
type ArgKind uint32

// The kinds of an [Arg].
const (
	Near ArgKind = iota
	Far
	NearOfBlock // Pointer is for package safe
	FirstOther
)

// Tag returns the Tag of an [Arg].
func Tag(k ArgKind, size uintptr) uint64 { return uint64(size)<<32 | uint64(k) }

// Kind returns the kind of the argument.
func (a *Arg) Kind() ArgKind { return ArgKind(a.Tag) }

// Size returns the size of the argument in bytes.
func (a *Arg) Size() uint32 { return uint32(a.Tag >> 32) }

// Calls are N calls of functions of other libraries, which enqueue work on Stream. They are made in CallContext, in the
// capture mode RELAXED.
type Calls struct {
	Home
	Stream driver.CUstream
	N      uint32
}

// Function is one of these calls. The function does not call Go.
type Function struct {
	Address uintptr   // see [Symbol]
	Args    [8]uint64 // integers and pointers
	Floats  [2]uint64 // the bits of floating-point numbers; those of a float32 in the lower half
	Result  int32     // what the function has returned
	Always  bool      // call it also if one before has returned another result than 0
	Made    bool      // it was called
}

// Launch is a launch without its arguments.
type Launch struct {
	Context  driver.CUcontext
	Function driver.CUfunction
	Config   driver.CUlaunchConfig
	Args     uint32
	Prepared uint32 // 1: nothing is loaded or allocated for the launch
}

// NodeCall selects the call for a [KernelNode].
type NodeCall uint32

// The calls for a [KernelNode].
const (
	AddNode NodeCall = iota
	SetNode
	SetExecNode
)

// KernelNode is a kernel node to add, which sets Node, or to change.
type KernelNode struct {
	Context     driver.CUcontext
	Function    driver.CUfunction
	Graph       driver.CUgraph
	Exec        driver.CUgraphExec
	Node        driver.CUgraphNode
	Grid, Block [3]uint32
	SharedBytes uint32
	Deps, Args  uint32
	Call        NodeCall
}

// CopyKind is the direction of a copy, the element size of a memset, or a launch that fills memory.
type CopyKind uint32

// The kinds of [Copy]. A memset has its value in Src, and its number of elements in Size. A launch
// is one that [Launch.Append] has appended to a list, whose address is the host of [Copy.Do].
const (
	HostToDevice CopyKind = iota
	DeviceToHost
	DeviceToDevice
	Peer
	HostToHost // pinned memory, at Dst and Src
	Set8
	Set16
	Set32
	FillLaunch
	SetRows8
	SetRows16
	SetRows32
	CopyRows     // what a driver.CUDA_MEMCPY3D describes, whose address is the host
	CopyRowsPeer // what a driver.CUDA_MEMCPY3D_PEER describes, whose address is the host
)

// Copy is a copy, a memset or a fill on a stream.
type Copy struct {
	Context                driver.CUcontext
	Stream                 driver.CUstream
	Dst, Src               driver.CUdeviceptr
	Size                   uint64
	DstContext, SrcContext driver.CUcontext // for the kinds Peer and CopyRowsPeer
	Pitch, Rows            uint64           // for a memset of several rows, of Size elements each
	Kind                   CopyKind
	Wait                   uint32 // 1: wait for the stream
	Home                   driver.CUcontext
	ID                     uint64 // the expected id of Home, 0 for any
}

// Alloc is memory to allocate in the order of a stream, from Pool unless that is 0.
type Alloc struct {
	Home
	Stream   driver.CUstream
	Pool     driver.CUmemoryPool
	Size     uint64
	Address  driver.CUdeviceptr
	Captured uint32 // 1: also if the stream is capturing
	Complete uint32 // 1: Stream carries no work; Do returns once any stream may use the memory
}

// Instantiation is a graph to instantiate in CallContext.
type Instantiation struct {
	Home
	Graph  driver.CUgraph
	Flags  uint64
	Exec   driver.CUgraphExec
	Failed driver.CUgraphNode // at which CUDA failed, or 0
	Result driver.CUgraphInstantiateResult

	Nodes   uint32 // of the graph
	Kernels uint32 // kernel nodes; 0 if unknown
	Graphs  uint32 // child graph and conditional nodes
}

// Home is the context of streams, events and memory. Calls return CodeReset once the
// context has another ID; an ID of 0 is not compared.
type Home struct {
	CallContext driver.CUcontext // made current for a call, 0 for none
	Context     driver.CUcontext
	ID          uint64
}

// Entry is an event for [Await], or for [Poll], which queries it when it is due, while Result is
// driver.CUDA_ERROR_NOT_READY.
type Entry struct {
	Home
	Event      driver.CUevent
	Since, Due int64 // nanoseconds of a monotonic clock, 0 for now
	Expected   int64 // estimated duration in nanoseconds, 0 if unknown
	Result     driver.CUresult
}

// Alarm interrupts a [Poll].
type Alarm struct {
	word   atomic.Uint32
	asleep uint32
}

// Seen returns the state of the alarm for a later Poll.
func (a *Alarm) Seen() uint32 { return a.word.Load() }

// The C structs have the same layouts.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Scope{})-24]
	_ = [1]struct{}{}[unsafe.Sizeof(Arg{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(Calls{})-40]
	_ = [1]struct{}{}[unsafe.Sizeof(Function{})-96]
	_ = [1]struct{}{}[unsafe.Sizeof(Launch{})-80]
	_ = [1]struct{}{}[unsafe.Sizeof(KernelNode{})-80]
	_ = [1]struct{}{}[unsafe.Sizeof(Instantiation{})-72]
	_ = [1]struct{}{}[unsafe.Sizeof(Entry{})-64]
	_ = [1]struct{}{}[unsafe.Sizeof(Alarm{})-8]
)

var initialized struct {
	sync.Mutex // a leaf: held while the driver is opened
	done       bool
}

// Init loads and initializes the driver. If that fails, the next call tries again. It
// returns CodeCallback on a thread that the driver has called.
func Init() error {
	initialized.Lock()
	defer initialized.Unlock()
	if initialized.done {
		if InCallback() {
			return CodeCallback
		}
		return nil
	}
	file, version, err := driver.Library()
	if err != nil {
		return err
	}
	if missing := bind(file); missing != "" {
		if err := driver.Find(missing); err != nil {
			return fmt.Errorf("a driver for CUDA 11.8 or newer is needed: %w", err)
		}
		return fmt.Errorf("%s of %s (CUDA %s) cannot be used: %w", missing, file, version, errors.ErrUnsupported)
	}
	if err := driver.CuInit(0); err != nil {
		return err
	}
	var n int32
	if err := driver.CuDriverGetVersion(&n); err != nil {
		return err
	}
	Version, HandlesSuffice = int(n), n >= 13000
	initialized.done = true
	return nil
}

// Version is the driver's version, such as 13000. It is set by [Init].
var Version int

// HandlesSuffice tells whether a call with a stream, an event or an address needs no current context. [Init] sets it
// for CUDA 13.0 and newer. Older drivers were not measured, and get one.
var HandlesSuffice bool
