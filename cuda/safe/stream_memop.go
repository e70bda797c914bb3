package safe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// MemOpValue is an integer that streams can write to memory and wait for.
type MemOpValue interface {
	~int32 | ~uint32 | ~int64 | ~uint64
}

// Element is one element of a buffer: see [Buffer.At]. It does not keep the buffer open.
type Element[T any] struct {
	memory  *memory
	address driver.CUdeviceptr
	err     error // set if the element does not exist
}

// At returns element i of the buffer for [WriteValue] and [WaitValue], which return
// [ErrRange] if i is out of range, and [ErrInvalidArgument] for managed memory.
func (b *Buffer[T]) At(i int) Element[T] {
	if b == nil || b.memory == nil {
		return Element[T]{}
	}
	if b.memory.managed() {
		return Element[T]{err: refuse("Buffer.At", ErrInvalidArgument, "streams cannot write or wait for values in managed memory; use NewBufferWith with Plain, or NewPinned")}
	}
	return at[T]("Buffer.At", b.memory, b.address, i, b.n)
}

// At returns element i of the memory for [WriteValue] and [WaitValue], which return
// [ErrRange] if i is out of range. On the host, access the element of [Pinned.Data] with
// functions of package sync/atomic.
func (h *Pinned[T]) At(i int) Element[T] {
	const op = "Pinned.At"
	if h == nil || h.memory == nil {
		return Element[T]{}
	}
	m := h.memory
	if m.address == 0 {
		return Element[T]{err: refuse(op, ErrNotSupported, "devices cannot access this memory")}
	}
	return at[T](op, m, m.address+driver.CUdeviceptr(uintptr(h.data)-uintptr(m.host)), i, h.n)
}

func at[T any](op string, m *memory, start driver.CUdeviceptr, i, n int) Element[T] {
	if i < 0 || i >= n {
		return Element[T]{err: refuse(op, ErrRange, "index %d of %d elements", i, n)}
	}
	var zero T
	return Element[T]{memory: m, address: start + driver.CUdeviceptr(i)*driver.CUdeviceptr(unsafe.Sizeof(zero))}
}

// MemOp is an operation for [Stream.MemOps]: see [NewWaitOp] and [NewWriteOp].
type MemOp struct {
	kind    driver.CUstreamBatchMemOpType
	until   driver.CUstreamWaitValue_flags // the condition of a wait
	memory  *memory
	address driver.CUdeviceptr
	value   uint64
	err     error
}

// NewWaitOp returns a wait for [Stream.MemOps], with the arguments and conditions of [WaitValue].
func NewWaitOp[T MemOpValue](e Element[T], v T, until driver.CUstreamWaitValue_flags) MemOp {
	o := memOp(e, v, driver.CU_STREAM_MEM_OP_WAIT_VALUE_32, driver.CU_STREAM_MEM_OP_WAIT_VALUE_64)
	o.until = until
	return o
}

// NewWriteOp returns a write for [Stream.MemOps], as by [WriteValue].
func NewWriteOp[T MemOpValue](e Element[T], v T) MemOp {
	return memOp(e, v, driver.CU_STREAM_MEM_OP_WRITE_VALUE_32, driver.CU_STREAM_MEM_OP_WRITE_VALUE_64)
}

func memOp[T MemOpValue](e Element[T], v T, narrow, wide driver.CUstreamBatchMemOpType) MemOp {
	o := MemOp{kind: narrow, memory: e.memory, address: e.address, value: uint64(v), err: e.err}
	if unsafe.Sizeof(v) == 8 {
		o.kind = wide
	}
	return o
}

// WaitValue makes later work of the stream wait until an element in memory meets a
// condition, which until selects:
//
//   - driver.CU_STREAM_WAIT_VALUE_GEQ: the element minus v, as a signed number, is at
//     least 0. Counters may therefore wrap around.
//   - driver.CU_STREAM_WAIT_VALUE_EQ: the element equals v.
//   - driver.CU_STREAM_WAIT_VALUE_AND: the element and v have a 1 bit in common.
//   - driver.CU_STREAM_WAIT_VALUE_NOR: some bit is 0 in both.
//
// The host (in a [Pinned]), kernels, and [WriteValue] on another stream can write the
// element.
//
// Only the value ends the wait. Until then everything that waits for the stream waits
// too: Close of buffers that it uses, [Stream.Synchronize], [Stream.Shutdown] until its
// context ends, and possibly the exit of the process. The device does not know where the
// value will come from: in a hardware queue, the wait may block a write that is enqueued
// later, which then never runs. Enqueue the write first if you can, or order
// the streams by events too.
//
// Streams share hardware queues; a process has 8 by default. A wait that does not end can
// block unrelated streams, and if it blocks all queues, no call reports a fault of
// another kernel. Set CUDA_DEVICE_MAX_CONNECTIONS=32 in the environment of programs with
// more than a few waiting streams: they then have 32 queues.
//
// WaitValue returns [ErrNotSupported], with the name of the device attribute, if the
// device lacks 64-bit values, NOR or CU_STREAM_WAIT_VALUE_FLUSH. It returns
// [ErrContextMismatch] if the memory is neither host memory, nor of the stream's context,
// nor of a peer with access enabled. CUDA rejects memory of pools, such as that of
// [NewBuffer], with driver.CUDA_ERROR_INVALID_VALUE (seen with driver 13.0): allocate device
// memory by [NewBufferWith] with [BufferOptions].Plain, or use a [Pinned]. In a capture the wait becomes
// part of the graph.
//
// Source: cuStreamWaitValue32, cuStreamWaitValue64.
func WaitValue[T MemOpValue](s *Stream, e Element[T], v T, until driver.CUstreamWaitValue_flags) error {
	return s.memOps("WaitValue", []MemOp{NewWaitOp(e, v, until)})
}

// WriteValue enqueues a write of v to an element in memory. A reader of v, on a device or the host, also sees all
// writes of earlier work of the stream. The errors are those of [WaitValue]. Source: cuStreamWriteValue32,
// cuStreamWriteValue64.
func WriteValue[T MemOpValue](s *Stream, e Element[T], v T) error {
	return s.memOps("WriteValue", []MemOp{NewWriteOp(e, v)})
}

// mostMemOps is the driver's limit for one call.
const mostMemOps = 255

// MemOps enqueues up to 255 operations in one call of the driver. They run in order. It returns [ErrRange] if there are
// more. If one operation is invalid, none is enqueued. Source: cuStreamBatchMemOp.
func (s *Stream) MemOps(ops []MemOp) error { return s.memOps("Stream.MemOps", ops) }

func (s *Stream) memOps(op string, ops []MemOp) (err error) {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if len(ops) > mostMemOps {
		return refuse(op, ErrRange, "%d operations are too many for one call: at most %d", len(ops), mostMemOps)
	}
	if err := c.ctx.can(op, ops); err != nil || len(ops) == 0 {
		return err
	}
	a := admission{op: op, stream: c, flags: enqueues, places: len(ops)}
	if err := a.admit(); err != nil {
		return err
	}
	defer func() { a.leave(err == nil) }()
	if err := c.unseen(op); err != nil {
		return err
	}
	for i := range ops {
		if err := ops[i].use(op, c, a.capture); err != nil {
			return numbered(err, i, len(ops))
		}
	}
	err = c.ctx.withCurrent(func() error { return enqueue(c.raw, ops) })
	return wrap(op, explainPooled(err, ops))
}

// explainPooled explains why the driver rejects operations on memory of a pool.
func explainPooled(err error, ops []MemOp) error {
	if err != driver.CUDA_ERROR_INVALID_VALUE || !slices.ContainsFunc(ops, func(o MemOp) bool { return o.memory.pooled() }) {
		return err
	}
	return needsPlain(driver.CUDA_ERROR_INVALID_VALUE)
}

// enqueue enqueues operations by one call of the driver.
func enqueue(s driver.CUstream, ops []MemOp) error {
	if len(ops) == 1 {
		return ops[0].enqueue(s)
	}
	batch := make([]driver.CUstreamBatchMemOpParams, len(ops))
	for i := range ops {
		ops[i].fill(&batch[i])
	}
	return driver.CuStreamBatchMemOp(s, uint32(len(batch)), &batch[0], 0)
}

// can returns an error if the device does not support one of the operations.
func (c *contextCore) can(op string, ops []MemOp) error {
	var wide, nor, flush bool
	for i := range ops {
		o := &ops[i]
		wide = wide || o.kind == driver.CU_STREAM_MEM_OP_WAIT_VALUE_64 || o.kind == driver.CU_STREAM_MEM_OP_WRITE_VALUE_64
		flush = flush || o.until&driver.CU_STREAM_WAIT_VALUE_FLUSH != 0
		nor = nor || o.until&^driver.CU_STREAM_WAIT_VALUE_FLUSH == driver.CU_STREAM_WAIT_VALUE_NOR
	}
	for _, n := range []struct {
		needed bool
		by     driver.CUdevice_attribute
	}{
		{wide, driver.CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS},
		{nor, driver.CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR},
		{flush, driver.CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES},
	} {
		if !n.needed {
			continue
		}
		if _, err := c.device.needs(op, n.by); err != nil {
			return err
		}
	}
	return nil
}

// use registers the stream, whose mu is held, as a user of the memory. A capture retains
// the memory.
func (o *MemOp) use(op string, s *streamCore, capture *capturing) error {
	if o.err != nil {
		return wrap(op, o.err)
	}
	switch {
	case o.memory == nil:
		return &Error{Op: op, Err: ErrClosed}
	case !o.memory.use(s) || !capture.retains(&o.memory.Handle):
		return o.memory.unusable(op)
	}
	return o.within(op, s.ctx)
}

// keptBy makes k retain the memory.
func (o *MemOp) keptBy(op string, c *contextCore, k *retained) error {
	if o.err != nil {
		return wrap(op, o.err)
	}
	if o.memory == nil || !k.retain(&o.memory.Handle, o.memory.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return o.within(op, c)
}

// within returns an error if work in c cannot access the memory.
func (o *MemOp) within(op string, c *contextCore) error {
	if b := o.memory.block; !c.mayUse(b) {
		return refuse(op, ErrContextMismatch, "%[2]v has no access to the memory of %[1]v: see Context.EnablePeerAccess", b.ctx.device, c.device)
	}
	return nil
}

// numbered adds the index of the operation to an error if there are several.
func numbered(err error, i, n int) error {
	if n > 1 {
		return numberedAs("operation", err, i)
	}
	return err
}

// numberedAs adds the kind and index of an item to an error.
func numberedAs(thing string, err error, i int) error {
	var e *Error
	if errors.As(err, &e) {
		at := *e
		at.Detail = fmt.Sprintf("%s %d: %s", thing, i, cmp.Or(e.Detail, "its buffer"))
		return &at
	}
	return err
}

// enqueue enqueues a single operation.
func (o *MemOp) enqueue(s driver.CUstream) error {
	switch o.kind {
	case driver.CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return driver.CuStreamWaitValue32(s, o.address, uint32(o.value), o.until)
	case driver.CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return driver.CuStreamWaitValue64(s, o.address, o.value, o.until)
	case driver.CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return driver.CuStreamWriteValue32(s, o.address, uint32(o.value), driver.CU_STREAM_WRITE_VALUE_DEFAULT)
	}
	return driver.CuStreamWriteValue64(s, o.address, o.value, driver.CU_STREAM_WRITE_VALUE_DEFAULT)
}

// fill writes the operation in CUDA's form. Waits and writes have the same layout there;
// the flags of a write are 0, as its until is.
func (o *MemOp) fill(p *driver.CUstreamBatchMemOpParams) {
	w := p.WaitValue()
	w.Operation, w.Address, w.Flags = o.kind, o.address, o.until
	*w.Value64() = o.value
}
