package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Memory is the memory of n values of type T: a [Buffer] of a device or [Pinned] memory of
// the host.
type Memory[T any] interface {
	Len() int
	span(*T) span // the parameter is nil: it ties the memory to its type
}

// A span is where the values of a [Memory] are: one side of a copy, or what is filled. The zero value
// is that of a nil Memory.
type span struct {
	memory *memory
	host   unsafe.Pointer     // of a Pinned; nil for a Buffer
	at     driver.CUdeviceptr // the first byte: pinned memory has the same address on the device and the host
	n      int
	size   uint64 // in bytes
}

func (b *Buffer[T]) span(*T) span {
	if b == nil {
		return span{}
	}
	return span{memory: b.memory, at: b.address, n: b.n, size: b.Size()}
}

func (h *Pinned[T]) span(*T) span {
	if h == nil {
		return span{}
	}
	return span{memory: h.memory, host: h.data, at: driver.CUdeviceptr(uintptr(h.data)), n: h.n, size: h.Size()}
}

func spanOf[T any](m Memory[T]) span {
	if m == nil {
		return span{}
	}
	return m.span(nil)
}

// open tells whether the memory is there.
func (s *span) open() bool { return s.memory != nil && !s.memory.Closed() }

// onDevice returns the address at which the device reaches the values. It returns [ErrInvalidArgument] if it does not
// reach them.
func (s *span) onDevice(op string) (driver.CUdeviceptr, error) {
	if s.host == nil {
		return s.at, nil
	}
	return s.memory.mapped(op, s.host)
}

// copyFrom describes a copy of all of from to the start of s. on is the context of the device memory, the
// destination's if both sides are device memory, and nil if none is.
func (s *span) copyFrom(op string, from *span) (c rt.Copy, on *contextCore, err error) {
	c = rt.Copy{Kind: rt.DeviceToDevice, Dst: s.at, Src: from.at, Size: from.size}
	if err := fits(op, from.n, s.n); err != nil {
		return c, nil, err
	}
	if err := apart(op, c.Dst, c.Src, c.Size); err != nil {
		return c, nil, err
	}
	switch {
	case s.host != nil && from.host != nil:
		c.Kind = rt.HostToHost
	case s.host != nil:
		c.Kind, on = rt.DeviceToHost, from.memory.ctx
	case from.host != nil:
		c.Kind, on = rt.HostToDevice, s.memory.ctx
	default:
		on = s.memory.ctx
		acrossContexts(&c, on, from.memory.ctx)
	}
	return c, on, nil
}

// retainedBy has k retain the memory.
func (s *span) retainedBy(op string, k *retained) error {
	if s.memory == nil || !k.retain(&s.memory.Handle, s.memory.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return nil
}

// some refuses an empty span: CUDA has no nodes for it.
func (s *span) some(op string) error {
	if s.n == 0 {
		return refuse(op, ErrRange, "a node for no values: leave it out")
	}
	return nil
}
