package safe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Word is a number that streams can write, and wait for.
type MemOpValue interface {
	~int32 | ~uint32 | ~int64 | ~uint64
}

// Element is one value of a buffer: see [Buffer.At]. It does not keep the buffer
// open.
type Element[T any] struct {
	memory  *memory
	address driver.CUdeviceptr
	err     error // why there is none
}

// At is value i of the buffer, for [WriteValue] and [WaitValue], which report an
// index that is out of range. Streams cannot do that with managed memory.
func (b *Buffer[T]) At(i int) Element[T] {
	if b == nil || b.memory == nil {
		return Element[T]{}
	}
	if b.memory.managed() {
		return Element[T]{err: refuse("Buffer.At", ErrInvalidArgument, "streams neither write nor wait for values of managed memory")}
	}
	return at[T]("Buffer.At", b.memory, b.address, i, b.n)
}

// At is value i of the buffer, for [WriteValue] and [WaitValue], which report an
// index that is out of range. The host uses the value by functions of package
// sync/atomic, on [Pinned.Data].
func (h *Pinned[T]) At(i int) Element[T] {
	const op = "Pinned.At"
	if h == nil || h.memory == nil {
		return Element[T]{}
	}
	m := h.memory
	if m.address == 0 {
		return Element[T]{err: refuse(op, ErrNotSupported, "devices cannot reach the memory")}
	}
	return at[T](op, m, m.address+driver.CUdeviceptr(uintptr(h.data)-uintptr(m.host)), i, h.n)
}

func at[T any](op string, m *memory, start driver.CUdeviceptr, i, n int) Element[T] {
	if i < 0 || i >= n {
		return Element[T]{err: refuse(op, ErrRange, "[%d] of %d values", i, n)}
	}
	var zero T
	return Element[T]{memory: m, address: start + driver.CUdeviceptr(i)*driver.CUdeviceptr(unsafe.Sizeof(zero))}
}

// MemOp is an operation for [Stream.BatchMemOps]: see [NewWaitOp] and [NewWriteOp].
type MemOp struct {
	kind    driver.CUstreamBatchMemOpType
	until   driver.CUstreamWaitValue_flags // of a wait
	memory  *memory
	address driver.CUdeviceptr
	value   uint64
	err     error
}

// NewWaitOp is [WaitValue] as part of a batch.
func NewWaitOp[T MemOpValue](e Element[T], v T, until driver.CUstreamWaitValue_flags) MemOp {
	o := memOp(e, v, driver.CU_STREAM_MEM_OP_WAIT_VALUE_32, driver.CU_STREAM_MEM_OP_WAIT_VALUE_64)
	o.until = until
	return o
}

// NewWriteOp is [WriteValue] as part of a batch.
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

// WaitValue keeps the stream from going on until a value in memory fulfils a
// condition: v or more (driver.CU_STREAM_WAIT_VALUE_GEQ; it is the difference that
// must not be negative, so that counters may wrap around), equal to v
// (CU_STREAM_WAIT_VALUE_EQ), with a bit in common with v (CU_STREAM_WAIT_VALUE_AND),
// or with a bit that is 0 in both (CU_STREAM_WAIT_VALUE_NOR). The value may be
// written by the host, in a [Pinned], by kernels, and by [WriteValue] on
// another stream.
//
// Nothing but the value ends the wait. As long as it does not come, everything
// that waits for the stream waits too: Close of buffers that are used by it or
// behind it, [Stream.Synchronize], [Stream.Shutdown] until its context ends it, and
// perhaps the end of the process. The device does not know who will write the
// value: a write that is enqueued later than the wait may end up after it in
// a queue of the hardware, and never be done. Enqueue the write first, or have
// events order the streams too, where that is possible.
//
// Streams share the queues of the hardware, of which a process has 8 by default. A wait
// that does not end can hold up streams that have nothing to do with it, and while all
// queues are held up a fault in another kernel is not reported to any call.
// Set CUDA_DEVICE_MAX_CONNECTIONS=32 in the environment of a program that keeps more
// than a few streams waiting: it has 32 queues then.
//
// 64-bit values, NOR and CU_STREAM_WAIT_VALUE_FLUSH are [ErrNotSupported], with the
// attribute's name, where the device cannot do them. The memory must be the
// host's, or of the stream's context, or of a peer that was given access to, else
// the error is [ErrContextMismatch]; that of [NewBufferAsync] is refused by CUDA, with
// driver.CUDA_ERROR_INVALID_VALUE, on the driver that was tried (13.0). In a
// capture the wait becomes part of the graph.
//
// Source: cuStreamWaitValue32, cuStreamWaitValue64.
func WaitValue[T MemOpValue](s *Stream, e Element[T], v T, until driver.CUstreamWaitValue_flags) error {
	return s.memOps("WaitValue", []MemOp{NewWaitOp(e, v, until)})
}

// WriteValue writes a value to memory when all work before it is done; whoever
// sees the value sees what that work has written, the host too. The errors are those of
// [WaitValue]. Source: cuStreamWriteValue32, cuStreamWriteValue64.
func WriteValue[T MemOpValue](s *Stream, e Element[T], v T) error {
	return s.memOps("WriteValue", []MemOp{NewWriteOp(e, v)})
}

// mostMemOps is how many operations one call of the driver takes.
const mostMemOps = 255

// BatchMemOps does up to 255 operations in their order, by one call of the driver. More
// are [ErrRange]; if there is anything wrong with one, none is done.
// Source: cuStreamBatchMemOp.
func (s *Stream) BatchMemOps(ops []MemOp) error { return s.memOps("Stream.BatchMemOps", ops) }

func (s *Stream) memOps(op string, ops []MemOp) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if len(ops) > mostMemOps {
		return refuse(op, ErrRange, "%d operations, and a batch has at most %d", len(ops), mostMemOps)
	}
	if err := c.ctx.can(op, ops); err != nil || len(ops) == 0 {
		return err
	}
	capture, err := c.enterWork(op, len(ops))
	if err != nil {
		return err
	}
	defer c.leaveWork(capture)
	if c.legacy() && c.capturing() { // by a capture that this package did not begin
		return &Error{Op: op, Err: ErrCapturing}
	}
	for i := range ops {
		if err := ops[i].use(op, c, capture); err != nil {
			return numbered(err, i, len(ops))
		}
	}
	enqueuing.enter()
	defer enqueuing.leave()
	err = c.ctx.withCurrent(func() error { return enqueue(c.raw, ops) })
	if err == driver.CUDA_ERROR_INVALID_VALUE && slices.ContainsFunc(ops, func(o MemOp) bool { return o.memory.home != nil }) {
		e := failed(op, driver.CUDA_ERROR_INVALID_VALUE)
		e.Detail = "memory of NewBufferAsync is not for this: a driver of CUDA 13.0 refuses it"
		return e
	}
	return wrap(op, err)
}

// enqueue puts operations on a stream, by one call.
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

// can refuses what the device cannot do.
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

// use notes that work on the stream, whose mu is held, uses the memory, also as
// part of a capture.
func (o *MemOp) use(op string, s *streamCore, capture *capturing) error {
	if o.err != nil {
		return wrap(op, o.err)
	}
	if o.memory == nil || !o.memory.use(s) || !capture.retains(&o.memory.Handle) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return o.within(op, s.ctx)
}

// keptBy has k keep the memory.
func (o *MemOp) keptBy(op string, c *contextCore, k *retained) error {
	if o.err != nil {
		return wrap(op, o.err)
	}
	if o.memory == nil || !k.retain(&o.memory.Handle, o.memory.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return o.within(op, c)
}

// within refuses memory that work in c cannot reach.
func (o *MemOp) within(op string, c *contextCore) error {
	if b := o.memory.block; !c.mayUse(b) {
		return refuse(op, ErrContextMismatch, "memory of %v, to which %v, where the operation is done, was not given access", b.ctx.device, c.device)
	}
	return nil
}

// numbered says in an error which operation of a batch it is about.
func numbered(err error, i, n int) error {
	if n > 1 {
		return numberedAs("operation", err, i)
	}
	return err
}

// numberedAs says in an error which thing of many it is about.
func numberedAs(thing string, err error, i int) error {
	var e *Error
	if errors.As(err, &e) {
		at := *e
		at.Detail = fmt.Sprintf("%s %d: %s", thing, i, cmp.Or(e.Detail, "its buffer"))
		return &at
	}
	return err
}

// enqueue puts the operation on a stream by itself.
func (o *MemOp) enqueue(s driver.CUstream) error {
	switch o.kind {
	case driver.CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return driver.CuStreamWaitValue32(s, o.address, uint32(o.value), uint32(o.until))
	case driver.CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return driver.CuStreamWaitValue64(s, o.address, o.value, uint32(o.until))
	case driver.CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return driver.CuStreamWriteValue32(s, o.address, uint32(o.value), uint32(driver.CU_STREAM_WRITE_VALUE_DEFAULT))
	}
	return driver.CuStreamWriteValue64(s, o.address, o.value, uint32(driver.CU_STREAM_WRITE_VALUE_DEFAULT))
}

// fill is the operation as CUDA has it in a batch. Waits and writes have the same
// layout there; a write has no flags, as until is 0.
func (o *MemOp) fill(p *driver.CUstreamBatchMemOpParams) {
	w := p.WaitValue()
	w.Operation, w.Address, w.Flags = o.kind, o.address, uint32(o.until)
	*w.Value64() = o.value
}
