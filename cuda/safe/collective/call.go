package collective

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A kind is one of NCCL's operations.
type kind uint8

const (
	allReduce kind = iota
	reduce
	reduceScatter
	allGather
	broadcast
	allToAll
	gather
	scatter
	send
	recv
)

// A call is an operation of one rank that has been checked.
type call struct {
	kind     kind
	comm     *Comm // which the garbage collector must not find dropped
	core     *core
	stream   *safe.Stream
	raw      driver.CUstream // of stream: the program may write another one there
	dst, src driver.CUdeviceptr
	count    uint64 // of elements, as NCCL counts them for the operation
	bytes    uint64 // of count elements
	element  nccl.NcclDataType_t
	peer     int32       // or the root
	uses     [4]safe.Arg // used of them
	at       [4]extent   // the memory of each
	used     int

	reduction *reduction // or nil
	op        nccl.NcclRedOp_t
}

// enqueue passes the call to NCCL.
func (k *call) enqueue() error {
	if k.reduction == nil {
		return k.pass()
	}
	return k.reduction.with(k, k.pass)
}

// pass calls NCCL's function for the operation. op is the operator that NCCL gets.
func (k *call) pass() error {
	src, dst, c, s := ffi.Pointer(k.src), ffi.Pointer(k.dst), *k.core.raw, k.stream.Raw()
	switch k.kind {
	case allReduce:
		return nccl.NcclAllReduce(src, dst, k.count, k.element, k.op, c, s)
	case reduce:
		return nccl.NcclReduce(src, dst, k.count, k.element, k.op, k.peer, c, s)
	case reduceScatter:
		return nccl.NcclReduceScatter(src, dst, k.count, k.element, k.op, c, s)
	case allGather:
		return nccl.NcclAllGather(src, dst, k.count, k.element, c, s)
	case broadcast:
		return nccl.NcclBroadcast(src, dst, k.count, k.element, k.peer, c, s)
	case send:
		return nccl.NcclSend(src, k.count, k.element, k.peer, c, s)
	case recv:
		return nccl.NcclRecv(dst, k.count, k.element, k.peer, c, s)
	}
	if !exchanges() {
		return k.messages()
	}
	switch k.kind {
	case allToAll:
		return nccl.NcclAlltoAll(src, dst, k.count, k.element, c, s)
	case gather:
		return nccl.NcclGather(src, dst, k.count, k.element, k.peer, c, s)
	default:
		return nccl.NcclScatter(src, dst, k.count, k.element, k.peer, c, s)
	}
}

// exchanges returns whether NCCL has all-to-all, gather and scatter itself: from 2.28 on.
var exchanges = sync.OnceValue(func() bool { return nccl.Find("ncclAlltoAll") == nil })

// messages makes one of these operations of sends and receives, for NCCL before 2.28. All of
// them form one group, in which a rank may also send to itself.
func (k *call) messages() error {
	err := nccl.NcclGroupStart()
	if err != nil {
		return err
	}
	root := int32(k.core.rank) == k.peer
	for peer := range int32(k.core.size) {
		at := driver.CUdeviceptr(uint64(peer) * k.bytes)
		switch k.kind {
		case allToAll:
			err = both(err, both(k.sends(k.src+at, peer), k.receives(k.dst+at, peer)))
		case gather:
			if root {
				err = both(err, k.receives(k.dst+at, peer))
			}
			if peer == k.peer {
				err = both(err, k.sends(k.src, peer))
			}
		case scatter:
			if root {
				err = both(err, k.sends(k.src+at, peer))
			}
			if peer == k.peer {
				err = both(err, k.receives(k.dst, peer))
			}
		}
	}
	return both(err, nccl.NcclGroupEnd())
}

// grouped returns whether the call is one of messages.
func (k *call) grouped() bool {
	return (k.kind == allToAll || k.kind == gather || k.kind == scatter) && !exchanges()
}

func (k *call) sends(from driver.CUdeviceptr, peer int32) error {
	return nccl.NcclSend(ffi.Pointer(from), k.count, k.element, peer, *k.core.raw, k.stream.Raw())
}

func (k *call) receives(to driver.CUdeviceptr, peer int32) error {
	return nccl.NcclRecv(ffi.Pointer(to), k.count, k.element, peer, *k.core.raw, k.stream.Raw())
}

// both returns the first error, or else the second. In a group of NCCL, the first is that of
// an operation and tells more.
func both(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// groupPlaces is what a group, or a single operation, takes of a stream's queue beside the places of its operations. It is
// more than NCCL needs, which mostly makes one kernel of a group: an abort takes milliseconds for each pending operation, so no
// more of them become pending than keep a GPU busy.
const groupPlaces = 7

// places is how many kernels NCCL adds to a group for the operation at most. One with messages to many ranks may take
// several.
func (k *call) places() int {
	if k.kind == allToAll || k.kind == gather || k.kind == scatter {
		return 1 + k.core.size/8
	}
	return 1
}

// run enqueues the operations in one group.
func (b *batch) run(op string) error {
	b.sort()
	for i, c := range b.cores {
		err := c.session.usable()
		if err == nil && !c.Acquire() {
			err = safe.ErrClosed
		}
		if err != nil {
			b.release(i)
			return named(op, err)
		}
	}
	defer b.release(len(b.cores))
	err := b.enqueueAll()
	if err == nil {
		return nil
	}
	for _, c := range b.cores { // which tells why calls and uses fail
		if end := c.err(); end != nil {
			return named(op, end)
		}
	}
	return named(op, err)
}

// sort lists the communicators, each once, in the order of their locks.
func (b *batch) sort() {
	for i := range b.calls {
		if c := b.calls[i].core; i == 0 || c != b.calls[i-1].core {
			b.cores = append(b.cores, c)
		}
	}
	b.cores = inOrder(b.cores)
}

// inOrder sorts communicators in the order of their locks, each once.
func inOrder(cores []*core) []*core {
	if len(cores) > 1 {
		slices.SortFunc(cores, func(a, b *core) int { return cmp.Compare(a.number, b.number) })
		cores = slices.Compact(cores)
	}
	return cores
}

func (b *batch) release(n int) {
	for _, c := range b.cores[:n] {
		c.Release()
	}
}

func (b *batch) unlock() {
	for _, c := range b.cores {
		c.mu.Unlock()
	}
}

// pass passes the operations to NCCL. The streams are admitted.
func (b *batch) pass() error {
	if err := b.lock(); err != nil {
		return err
	}
	defer b.unlock()
	if err := b.sameCapture(); err != nil {
		return err
	}
	b.passed = true
	return b.result(b.group())
}

// lock locks the communicators, unless one cannot be used or list has to list again.
func (b *batch) lock() error {
	for _, c := range b.cores {
		c.mu.Lock()
	}
	err := b.fresh()
	if err != nil {
		b.unlock()
	}
	return err
}

// fresh returns an error if a communicator cannot be used, or if list has to list again. The communicators are locked.
func (b *batch) fresh() error {
	for _, c := range b.cores {
		if err := c.session.usable(); err != nil {
			return err
		}
	}
	if b.listed != b.version() {
		return errStale
	}
	return nil
}

// result explains an error of NCCL's and ends the communicators with it, unless NCCL has only refused the call: then they
// work as before.
func (b *batch) result(err error) error {
	if err == nil {
		return nil
	}
	code, ok := err.(nccl.NcclResult_t)
	err = explained(err)
	if refused := ok && code == nccl.NcclInvalidArgument && len(b.calls) == 1 && !b.calls[0].grouped(); !refused {
		failAll(b.cores, err)
	}
	return err
}

// sameCapture refuses a group whose streams are in a capture only in part. They are in no more than one.
func (b *batch) sameCapture() error {
	if len(b.on) < 2 {
		return nil
	}
	capturing := 0
	for _, on := range slices.Backward(b.on) { // so the context of the first one is current again in the end
		var status driver.CUstreamCaptureStatus
		if err := driver.CuCtxSetCurrent(on.Stream.Context().Raw()); err != nil { // which it needs before CUDA 13.0
			return err
		}
		if err := driver.CuStreamIsCapturing(on.Stream.Raw(), &status); err != nil {
			return err
		}
		if status != driver.CU_STREAM_CAPTURE_STATUS_NONE {
			capturing++
		}
	}
	if capturing > 0 && capturing < len(b.on) {
		return fmt.Errorf("%w: %d of %d streams of the group are in one: all must be, or none", safe.ErrCapturing, capturing, len(b.on))
	}
	return nil
}

// group passes the operations to NCCL, several of them as a group.
func (b *batch) group() error {
	if len(b.calls) == 1 {
		return b.calls[0].enqueue()
	}
	if err := nccl.NcclGroupStart(); err != nil {
		return err
	}
	var err error
	for i := range b.calls {
		if err = b.calls[i].enqueue(); err != nil {
			failAll(b.cores, explained(err)) // else the end of the group may wait for what it lacks
			break
		}
	}
	return both(err, nccl.NcclGroupEnd())
}
