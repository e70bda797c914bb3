package rt

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// What the calls of this package return beside CUDA's codes.
const (
	CodeCapturing driver.CUresult = 100000 // the stream captures and was left alone
	CodeReset     driver.CUresult = 100001 // the context was reset and was left alone
	CodeCaptured  driver.CUresult = 100002 // the event was recorded as part of a capture
	CodeCallback  driver.CUresult = 100003 // the driver has called this thread
)

// What the driver's thread calls, with the tokens of [HostFunc] and
// [AddCallback]. Package safe sets them before it uses those.
var (
	OnHostFunc func(token uintptr)
	OnStatus   func(token uintptr, code driver.CUresult)
)

// Scope is what was current on the thread before [Enter].
type Scope struct {
	before    uintptr
	mode, set uint32
}

// Arg is an argument of a kernel. It has four words, which Go keeps in
// registers.
type Arg struct {
	Pointer unsafe.Pointer // what is meant depends on the kind; for Far the value
	Tag     uint64         // the size in the upper half, an ArgKind in the lower
	A, B    uint64         // the value, if it is not Far
}

// ArgKind is the kind of an [Arg]. There may be more, which must not get to C.
type ArgKind uint32

// The kinds of an [Arg].
const (
	Near ArgKind = iota
	Far
	NearOfBlock // Pointer is for package safe
	FirstOther
)

// Tag makes an [Arg]'s.
func Tag(k ArgKind, size uintptr) uint64 { return uint64(size)<<32 | uint64(k) }

// Kind is the kind of the argument.
func (a *Arg) Kind() ArgKind { return ArgKind(a.Tag) }

// Size is the size of the argument in bytes.
func (a *Arg) Size() uint32 { return uint32(a.Tag >> 32) }

// Launch is what a launch needs beside its arguments.
type Launch struct {
	Context  driver.CUcontext
	Function driver.CUfunction
	Config   driver.CUlaunchConfig
	Args     uint32
}

// NodeCall says what becomes of a [KernelNode].
type NodeCall uint32

// The calls for a [KernelNode].
const (
	AddNode NodeCall = iota
	SetNode
	SetExecNode
)

// KernelNode is a kernel in a graph: to add, which sets Node, or to change.
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

// CopyKind says which ends of a copy are on a device, or how wide the value of
// a memset is.
type CopyKind uint32

// The kinds of [Copy]. A memset has its value in place of the source, and its
// size in values.
const (
	HostToDevice CopyKind = iota
	DeviceToHost
	DeviceToDevice
	Peer
	Set8
	Set16
	Set32
)

// Copy is a copy or a memset, on a stream.
type Copy struct {
	Context                driver.CUcontext
	Stream                 driver.CUstream
	Dst, Src               driver.CUdeviceptr
	Size                   uint64
	DstContext, SrcContext driver.CUcontext // of the kind Peer
	Kind                   CopyKind
	Wait                   uint32 // not 0: wait for the stream
	Home                   driver.CUcontext
	ID                     uint64 // that Home must still have, 0 for any
}

// Home is the context of streams, events and memory: calls on them are CodeReset
// once it has another ID. Set is the context to make current for such a call, 0 for
// none; an ID of 0 is not compared.
type Home struct {
	Set, Context driver.CUcontext
	ID           uint64
}

// Entry is an event for [Poll] to ask. Result is what it said: the event is
// asked as long as that is driver.CUDA_ERROR_NOT_READY, when it is due.
type Entry struct {
	Home
	Event      driver.CUevent
	Since, Due int64 // CLOCK_MONOTONIC in nanoseconds, 0 for now
	Expected   int64 // nanoseconds that it will take, perhaps; 0 where nobody knows
	Result     driver.CUresult
	_          uint32
}

// Alarm interrupts a [Poll].
type Alarm struct {
	word   atomic.Uint32
	asleep uint32
}

// Seen is what a later Poll compares with.
func (a *Alarm) Seen() uint32 { return a.word.Load() }

// C has the same layouts.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Scope{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(Arg{})-32]
	_ = [1]struct{}{}[unsafe.Sizeof(Launch{})-80]
	_ = [1]struct{}{}[unsafe.Sizeof(KernelNode{})-80]
	_ = [1]struct{}{}[unsafe.Sizeof(Copy{})-80]
	_ = [1]struct{}{}[unsafe.Sizeof(Entry{})-64]
	_ = [1]struct{}{}[unsafe.Sizeof(Alarm{})-8]
)

var initialized struct {
	sync.Mutex
	done bool
}

// Init loads and initializes the driver. Where that fails, the next call tries
// again. On a thread that the driver has called it is CodeCallback.
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
			return fmt.Errorf("a driver of CUDA 11.8 or newer is needed: %w", err)
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

// Version is the driver's, such as 13000, once [Init] has succeeded.
var Version int

// HandlesSuffice tells, once [Init] has succeeded, that a call which gets a
// stream, an event or an address needs no current context. It was measured for
// drivers of CUDA 13.0; what older ones need is not known.
var HandlesSuffice bool
