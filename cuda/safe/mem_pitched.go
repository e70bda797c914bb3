package safe

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Extent is how large a box is: values in a row, rows in a slice, slices. Height
// and Depth count as 1 where they are 0; Width must be set.
type Extent struct{ Width, Height, Depth int }

func (e Extent) full() Extent { return Extent{e.Width, max(e.Height, 1), max(e.Depth, 1)} }

func (e Extent) String() string {
	e = e.full()
	return fmt.Sprintf("%dx%dx%d", e.Width, e.Height, e.Depth)
}

// Position is a place in a box: value X of row Y of slice Z.
type Position struct{ X, Y, Z int }

// Pitched is memory seen as rows of values, and slices of rows: a picture, a matrix, a
// volume, or a part of one. It is a view of a [Buffer], a [Pinned], a Go slice
// or an [Array], or has memory of its own, see [NewPitched]. Copies between boxes of all
// kinds are done by [Pitched.CopyFrom] and [Pitched.CopyFromAsync].
//
// A box is not changed once it is made, and any number of goroutines may use it.
type Pitched[T any] struct {
	end
	extent Extent // full
	owned  bool
}

// An end is where a box lies, as copies see it.
type end struct {
	memory  *memory             // nil of a Go slice
	kind    driver.CUmemorytype // the host's, a device's, or an array
	address driver.CUdeviceptr  // of a device
	data    unsafe.Pointer      // of the host
	array   driver.CUarray
	x, y, z uint64 // where it begins in an array, x in bytes
	pitch   uint64 // bytes from row to row; not of an array
	rows    uint64 // rows from slice to slice
}

// NewPitched allocates memory of a device for a box. Its rows begin where the device
// reads them fast, so that there is room between them: see [Pitched.Pitch]. It is not
// cleared. Source: cuMemAllocPitch, and cuMemFree when closed.
func NewPitched[T any](x *Context, e Extent) (*Pitched[T], error) {
	const op = "NewPitched"
	row, err := rowSize[T](e)
	if err != nil {
		return nil, wrap(op, err)
	}
	e = e.full()
	high, rows := bits.Mul64(uint64(e.Height), uint64(e.Depth))
	if high != 0 {
		return nil, refuse(op, ErrRange, "%v values", e)
	}
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: row * rows, free: (*block).memFree}
	var pitch uint64
	err = b.allocate(c, func() error {
		return driver.CuMemAllocPitch(&b.address, &pitch, row, rows, elementSize(row/uint64(e.Width)))
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	b.size = pitch * rows
	at := end{memory: newMemory(b), kind: driver.CU_MEMORYTYPE_DEVICE, address: b.address, pitch: pitch, rows: uint64(e.Height)}
	return &Pitched[T]{end: at, extent: e, owned: true}, nil
}

// elementSize is what kernels will read at once, of the sizes that CUDA wants to
// know about.
func elementSize(size uint64) uint32 {
	switch {
	case size%16 == 0:
		return 16
	case size%8 == 0:
		return 8
	}
	return 4
}

// Pitched is the buffer seen as a box, from its first value on. pitch is how many bytes
// there are from row to row, 0 for rows without room between them. If the buffer is
// too short the error is [ErrRange]. The memory is the buffer's, and closed with it.
func (b *Buffer[T]) Pitched(e Extent, pitch uint64) (*Pitched[T], error) {
	const op = "Buffer.Pitched"
	if b == nil || b.memory == nil || b.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	at := end{memory: b.memory, kind: driver.CU_MEMORYTYPE_DEVICE, address: b.address}
	return shape[T](op, at, e, pitch, b.n)
}

// Pitched is the buffer seen as a box: see [Buffer.Pitched].
func (h *Pinned[T]) Pitched(e Extent, pitch uint64) (*Pitched[T], error) {
	const op = "Pinned.Pitched"
	if h == nil || h.memory == nil || h.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	at := end{memory: h.memory, kind: driver.CU_MEMORYTYPE_HOST, data: h.data}
	return shape[T](op, at, e, pitch, h.n)
}

// PitchedOf is a Go slice seen as a box: see [Buffer.Pitched]. It is for [Pitched.CopyFrom]
// alone, as [Pitched.CopyFromAsync] takes memory that is pinned.
func PitchedOf[T any](s []T, e Extent, pitch uint64) (*Pitched[T], error) {
	at := end{kind: driver.CU_MEMORYTYPE_HOST, data: unsafe.Pointer(unsafe.SliceData(s))}
	return shape[T]("PitchedOf", at, e, pitch, len(s))
}

// rowSize is the size of a row in bytes, if there can be such a box.
func rowSize[T any](e Extent) (uint64, error) {
	if e.Height < 0 || e.Depth < 0 {
		return 0, fmt.Errorf("%w: a height of %d and a depth of %d", ErrRange, e.Height, e.Depth)
	}
	return sizeOf[T](e.Width)
}

// shape is a box in memory of n values.
func shape[T any](op string, at end, e Extent, pitch uint64, n int) (*Pitched[T], error) {
	row, err := rowSize[T](e)
	if err != nil {
		return nil, wrap(op, err)
	}
	b := &Pitched[T]{end: at, extent: e.full()}
	if pitch == 0 {
		pitch = row
	}
	b.pitch, b.rows = pitch, uint64(b.extent.Height)
	var zero T
	room := uint64(n) * uint64(unsafe.Sizeof(zero))
	if pitch < row {
		return nil, refuse(op, ErrRange, "rows of %d bytes every %d bytes", row, pitch)
	}
	if size, ok := b.span(b.bytes()); !ok || size > room {
		return nil, refuse(op, ErrRange, "%v values, in rows every %d bytes, do not fit into %d bytes", e, pitch, room)
	}
	return b, nil
}

// A bulk is the size of a box in bytes of a row, rows and slices.
type bulk struct{ width, height, depth uint64 }

func (b *Pitched[T]) bytes() bulk {
	var zero T
	e := b.extent
	return bulk{uint64(e.Width) * uint64(unsafe.Sizeof(zero)), uint64(e.Height), uint64(e.Depth)}
}

// span is how many bytes there are from the first to the last of a box; ok is false
// where that is beyond all numbers.
func (e *end) span(b bulk) (size uint64, ok bool) {
	high1, rows := bits.Mul64(b.depth-1, e.rows)
	rows, carry1 := bits.Add64(rows, b.height-1, 0)
	high2, size := bits.Mul64(rows, e.pitch)
	size, carry2 := bits.Add64(size, b.width, 0)
	return size, high1|carry1|high2|carry2 == 0
}

// Part is a part of the box, which begins at a position and is e large. It shares
// the memory, and is closed with it. A part that is not in the box is [ErrRange].
func (b *Pitched[T]) Sub(at Position, e Extent) (*Pitched[T], error) {
	const op = "Pitched.Sub"
	if !b.open() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	p := &Pitched[T]{end: b.end, extent: e.full()}
	all := b.extent
	if e.Height < 0 || e.Depth < 0 || !within(at.X, e.Width, all.Width) || !within(at.Y, p.extent.Height, all.Height) || !within(at.Z, p.extent.Depth, all.Depth) {
		return nil, refuse(op, ErrRange, "%v values at %v of %v", e, at, all)
	}
	var zero T
	x, y, z := uint64(at.X)*uint64(unsafe.Sizeof(zero)), uint64(at.Y), uint64(at.Z)
	if b.kind == driver.CU_MEMORYTYPE_ARRAY {
		p.x, p.y, p.z = b.x+x, b.y+y, b.z+z
		return p, nil
	}
	offset := (z*b.rows+y)*b.pitch + x
	if b.kind == driver.CU_MEMORYTYPE_HOST {
		p.data = unsafe.Add(b.data, offset)
	} else {
		p.address = b.address + driver.CUdeviceptr(offset)
	}
	return p, nil
}

// within tells whether n values from at on are among all.
func within(at, n, all int) bool { return at >= 0 && n > 0 && n <= all && at <= all-n }

// open tells whether there is a box, and its memory is not closed.
func (b *Pitched[T]) open() bool {
	return b != nil && (b.memory == nil && b.data != nil || b.memory != nil && !b.memory.Closed())
}

// acquire marks the memory for a call; there is no block of a Go slice.
func (b *Pitched[T]) acquire(op string) (*block, error) {
	if b != nil && b.memory == nil && b.data != nil {
		return nil, nil
	}
	if b == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return b.memory.acquire(op)
}

// Close gives the memory of [NewPitched] back, as [Buffer.Close] does. Closing a box
// that shares memory with others does nothing, and so does closing again.
func (b *Pitched[T]) Close() error {
	if b == nil || !b.owned {
		return nil
	}
	return b.memory.close()
}

// Extent is how large the box is.
func (b *Pitched[T]) Extent() Extent {
	if b == nil {
		return Extent{}
	}
	return b.extent
}

// Pitch is how many bytes there are from row to row, 0 for an [Array], which has its
// own ways.
func (b *Pitched[T]) Pitch() uint64 {
	if b == nil {
		return 0
	}
	return b.pitch
}

// SlicePitch is how many bytes there are from slice to slice, 0 for an [Array].
func (b *Pitched[T]) SlicePitch() uint64 {
	if b == nil {
		return 0
	}
	return b.pitch * b.rows
}

// Raw is the address of the box on its device, 0 for boxes of other memory and once the
// memory is closed. Kernels that get it inside a struct need the box in
// [LaunchConfig].Uses: see [Buffer.Raw].
func (b *Pitched[T]) Raw() driver.CUdeviceptr {
	if b == nil || b.memory == nil || b.memory.Closed() {
		return 0
	}
	return b.address
}

// Arg is the address of the box on its device, as an argument of a kernel, which will
// also want [Pitched.Pitch]. Boxes of other memory are no arguments.
func (b *Pitched[T]) Arg() Arg {
	if b == nil || b.memory == nil || b.address == 0 {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	return addressArg(b.memory, uint64(b.address))
}
