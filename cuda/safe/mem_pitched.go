package safe

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Extent is the size of pitched memory or of an array: values in a row, rows in a slice,
// slices. Height and Depth count as 1 if they are 0. Width must be at least 1.
type Extent struct{ Width, Height, Depth int }

// full returns e with Height and Depth at least 1.
func (e Extent) full() Extent { return Extent{e.Width, max(e.Height, 1), max(e.Depth, 1)} }

func (e Extent) text() string {
	e = e.full()
	return fmt.Sprintf("%dx%dx%d", e.Width, e.Height, e.Depth)
}

// Position is the position of a value in pitched memory: value X of row Y of slice Z.
type Position struct{ X, Y, Z int }

// Pitched is memory laid out as rows of values, and slices of rows: an image, a matrix, a
// volume, or a part of one. It is a view of a [Buffer], a [Pinned], a Go slice or an
// [Array], or owns device memory of its own, see [NewPitched]. [Pitched.CopyFrom] and
// [Pitched.CopyFromAsync] copy between all of these.
//
// A Pitched is immutable, and any number of goroutines may use it at once.
type Pitched[T any] struct {
	layout
	extent Extent // full
	owned  bool
}

// A layout is where pitched memory lies, as CUDA's copies take it.
type layout struct {
	memory  *memory             // nil for a Go slice
	kind    driver.CUmemorytype // host, device or array
	address driver.CUdeviceptr  // of device memory
	data    unsafe.Pointer      // of host memory
	array   driver.CUarray
	x, y, z uint64 // the first value in an array, x in bytes
	pitch   uint64 // bytes from row to row, 0 for an array
	rows    uint64 // rows from slice to slice, 0 for an array
}

// NewPitched allocates pitched device memory. CUDA pads the rows so that each begins at
// an address that the device accesses efficiently: see [Pitched.Pitch]. The memory is not
// initialized. It returns [ErrInvalidArgument] if T contains Go pointers or bools or has no size,
// and [ErrRange] if the extent is empty or too large.
// Source: cuMemAllocPitch, and cuMemFree when closed.
func NewPitched[T any](x *Context, e Extent) (*Pitched[T], error) {
	const op = "NewPitched"
	row, err := rowSize[T](e)
	if err != nil {
		return nil, wrap(op, err)
	}
	e = e.full()
	high, rows := bits.Mul64(uint64(e.Height), uint64(e.Depth))
	if high != 0 {
		return nil, refuse(op, ErrRange, "%v values are more than an address space has", e)
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
	at := layout{memory: newMemory(b), kind: driver.CU_MEMORYTYPE_DEVICE, address: b.address, pitch: pitch, rows: uint64(e.Height)}
	return &Pitched[T]{layout: at, extent: e, owned: true}, nil
}

// elementSize returns the size of the accesses that rows are aligned for, one of those
// that cuMemAllocPitch takes.
func elementSize(size uint64) uint32 {
	switch {
	case size%16 == 0:
		return 16
	case size%8 == 0:
		return 8
	}
	return 4
}

// Pitched returns a pitched view of the Buffer, from its first value on. pitch is the
// number of bytes from row to row, or 0 for rows without padding. The view shares the
// memory and is closed with the Buffer that owns it. It returns [ErrRange] if the Buffer
// is too short, or if pitch is less than the size of a row.
func (b *Buffer[T]) Pitched(e Extent, pitch uint64) (*Pitched[T], error) {
	const op = "Buffer.Pitched"
	if b == nil || b.memory == nil || b.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	at := layout{memory: b.memory, kind: driver.CU_MEMORYTYPE_DEVICE, address: b.address}
	return shape[T](op, at, e, pitch, b.n)
}

// Pitched returns a pitched view of the memory, from its first value on. pitch is the number of bytes from row to row,
// or 0 for rows without padding. The view shares the memory and is closed with the Pinned that owns it. It returns
// [ErrRange] if the memory is too short, or if pitch is less than the size of a row.
func (h *Pinned[T]) Pitched(e Extent, pitch uint64) (*Pitched[T], error) {
	const op = "Pinned.Pitched"
	if h == nil || h.memory == nil || h.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	at := layout{memory: h.memory, kind: driver.CU_MEMORYTYPE_HOST, data: h.data}
	return shape[T](op, at, e, pitch, h.n)
}

// PitchedOf returns a pitched view of a Go slice, with the pitch and the errors of [Buffer.Pitched]. It is for
// [Pitched.CopyFrom] only, because [Pitched.CopyFromAsync] needs pinned memory.
func PitchedOf[T any](s []T, e Extent, pitch uint64) (*Pitched[T], error) {
	at := layout{kind: driver.CU_MEMORYTYPE_HOST, data: unsafe.Pointer(unsafe.SliceData(s))}
	return shape[T]("PitchedOf", at, e, pitch, len(s))
}

// rowSize returns the size of a row in bytes, or an error if T or e does not suit.
func rowSize[T any](e Extent) (uint64, error) {
	if e.Height < 0 || e.Depth < 0 {
		return 0, fmt.Errorf("%w: height %d and depth %d must not be negative", ErrRange, e.Height, e.Depth)
	}
	return sizeOfSome[T](e.Width)
}

// shape returns a pitched view of n values in a layout.
func shape[T any](op string, at layout, e Extent, pitch uint64, n int) (*Pitched[T], error) {
	row, err := rowSize[T](e)
	if err != nil {
		return nil, wrap(op, err)
	}
	b := &Pitched[T]{layout: at, extent: e.full()}
	if pitch == 0 {
		pitch = row
	}
	b.pitch, b.rows = pitch, uint64(b.extent.Height)
	var zero T
	room := uint64(n) * uint64(unsafe.Sizeof(zero))
	if pitch < row {
		return nil, refuse(op, ErrRange, "a row has %d bytes, more than the pitch of %d", row, pitch)
	}
	if size, ok := b.reach(b.bytes()); !ok || size > room {
		return nil, refuse(op, ErrRange, "%v values with a pitch of %d bytes do not fit into %d bytes", e, pitch, room)
	}
	return b, nil
}

// A byteExtent is an extent with the width in bytes.
type byteExtent struct{ width, height, depth uint64 }

func (b *Pitched[T]) bytes() byteExtent {
	var zero T
	e := b.extent
	return byteExtent{uint64(e.Width) * uint64(unsafe.Sizeof(zero)), uint64(e.Height), uint64(e.Depth)}
}

// reach returns the number of bytes from the first to the last one. ok is false if that
// overflows.
func (p *layout) reach(v byteExtent) (size uint64, ok bool) {
	high1, rows := bits.Mul64(v.depth-1, p.rows)
	rows, carry1 := bits.Add64(rows, v.height-1, 0)
	high2, size := bits.Mul64(rows, p.pitch)
	size, carry2 := bits.Add64(size, v.width, 0)
	return size, high1|carry1|high2|carry2 == 0
}

// Sub returns a view of the values from position at on, with extent e. It shares the
// memory and is closed with it. It returns [ErrRange] if the view is not within b.
func (b *Pitched[T]) Sub(at Position, e Extent) (*Pitched[T], error) {
	const op = "Pitched.Sub"
	if !b.open() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	p := &Pitched[T]{layout: b.layout, extent: e.full()}
	all := b.extent
	if e.Height < 0 || e.Depth < 0 || !within(at.X, e.Width, all.Width) || !within(at.Y, p.extent.Height, all.Height) || !within(at.Z, p.extent.Depth, all.Depth) {
		return nil, refuse(op, ErrRange, "%v values at %v are not within %v", e, at, all)
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

// within reports whether the n values from at on are among all values.
func within(at, n, all int) bool { return at >= 0 && n > 0 && n <= all && at <= all-n }

// open reports whether b is a Pitched whose memory is not closed.
func (b *Pitched[T]) open() bool {
	return b != nil && (b.memory == nil && b.data != nil || b.memory != nil && !b.memory.Closed())
}

// acquire acquires the block for a call. A Go slice has no block: it returns nil.
func (b *Pitched[T]) acquire(op string) (*block, error) {
	if b != nil && b.memory == nil && b.data != nil {
		return nil, nil
	}
	if b == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return b.memory.acquire(op)
}

// Close frees the memory of [NewPitched], as [Buffer.Close] does. Closing a view of other
// memory does nothing, and neither does closing again.
func (b *Pitched[T]) Close() error {
	if b == nil || !b.owned {
		return nil
	}
	return b.memory.close()
}

// Extent returns the size in values, rows and slices.
func (b *Pitched[T]) Extent() Extent {
	if b == nil {
		return Extent{}
	}
	return b.extent
}

// Pitch returns the number of bytes from row to row. It returns 0 for an [Array], whose
// layout CUDA does not tell.
func (b *Pitched[T]) Pitch() uint64 {
	if b == nil {
		return 0
	}
	return b.pitch
}

// SlicePitch returns the number of bytes from slice to slice, 0 for an [Array].
func (b *Pitched[T]) SlicePitch() uint64 {
	if b == nil {
		return 0
	}
	return b.pitch * b.rows
}

// Raw returns the device address of the first value. It returns 0 for host memory and
// arrays, and once the memory is closed. If a kernel gets the address inside a struct,
// name the Pitched in [LaunchConfig].Uses: see [Buffer.Raw].
func (b *Pitched[T]) Raw() driver.CUdeviceptr {
	if b == nil || b.memory == nil || b.memory.Closed() {
		return 0
	}
	return b.address
}

// Arg returns the device address of the first value as a kernel argument. The kernel
// usually needs [Pitched.Pitch] too. The launch returns [ErrClosed] for host memory and
// arrays.
func (b *Pitched[T]) Arg() Arg {
	if b == nil || b.memory == nil || b.address == 0 {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	return addressArg(b.memory, uint64(b.address))
}

// String describes the pitched memory for messages.
func (b *Pitched[T]) String() string {
	kind := generic[T]("Pitched")
	switch {
	case b == nil || b.memory == nil && b.data == nil:
		return neverOpened(kind)
	case b.memory == nil:
		return fmt.Sprintf("%s: %s values in a Go slice", kind, b.extent.text())
	case b.kind == driver.CU_MEMORYTYPE_HOST:
		return fmt.Sprintf("%s: %s values on the host%s", kind, b.extent.text(), closedText(b.memory.Closed()))
	}
	return fmt.Sprintf("%s: %s values %s%s", kind, b.extent.text(), b.memory.place(), closedText(b.memory.Closed()))
}

// Fill sets every value to v, as [Buffer.Fill] does for a buffer. It waits for all work that
// uses b, and returns when the memory is set. It returns [ErrInvalidArgument] unless b is device
// memory, and not an array, and, if v is not all zeros, if T has more than 4,000 bytes, or is a type of
// 2 or 4 that [Buffer.Fill] sets by a memset and the pitch is not a multiple of that. It returns [ErrCapturing] if a stream that uses b is capturing.
// Source: cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async or cuLaunchKernel,
// cuStreamSynchronize.
func (b *Pitched[T]) Fill(v T) error {
	const op = "Pitched.Fill"
	row, err := filling(op, v, b.Extent().Width)
	if err != nil {
		return err
	}
	return b.setNow(op, row)
}

// FillAsync enqueues a fill that sets every value of b to v, with the errors of [Pitched.Fill]. If b is a part of a
// volume with room between its slices, FillAsync enqueues a fill for each slice, and work of other goroutines may come
// between them. Source: cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async or cuLaunchKernel.
func (b *Pitched[T]) FillAsync(s *Stream, v T) error {
	const op = "Pitched.FillAsync"
	row, err := filling(op, v, b.Extent().Width)
	if err != nil {
		return err
	}
	return b.set(op, s, row)
}

func (b *Pitched[T]) setNow(op string, row fill) error {
	m, err := b.setting(op, row)
	if err != nil {
		return err
	}
	defer m.Release()
	if b.slices() == 1 {
		c, host, err := b.sliceAt(row, 0)
		if err != nil {
			return wrap(op, err)
		}
		return m.ctx.copyNow(op, &c, host, m)
	}
	return m.ctx.doNow(op, []*block{m}, func(stream driver.CUstream) error {
		for i := range b.slices() {
			c, host, err := b.sliceAt(row, i)
			if err != nil {
				return err
			}
			c.Stream = stream
			if err := check("", c.Do(host)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *Pitched[T]) set(op string, s *Stream, row fill) error {
	m, err := b.setting(op, row)
	if err != nil {
		return err
	}
	defer m.Release()
	for i := range b.slices() {
		c, host, err := b.sliceAt(row, i)
		if err == nil {
			err = s.copy(op, &c, host, m.ctx, m)
		}
		if err != nil {
			return wrap(op, err)
		}
	}
	return nil
}

// setting checks a fill of rows, and acquires the block. It loads the kernel for the fill, if it
// takes one, which must not happen with the stream locked.
func (b *Pitched[T]) setting(op string, row fill) (*block, error) {
	m, err := b.acquire(op)
	if err != nil {
		return nil, err
	}
	width := map[rt.CopyKind]uint64{rt.Set8: 1, rt.Set16: 2, rt.Set32: 4}[row.memset.Kind]
	switch {
	case b.kind != driver.CU_MEMORYTYPE_DEVICE:
		err = refuse(op, ErrInvalidArgument, "only device memory can be filled, not host memory or an array")
	case row.value != nil:
		_, err = row.rows(m.ctx, b.address, b.pitch, 1)
		err = wrap(op, err)
	case b.pitch%width != 0:
		err = refuse(op, ErrInvalidArgument, "the pitch of %d bytes is not a multiple of the values' size of %d", b.pitch, width)
	}
	if err != nil && m != nil {
		m.Release()
	}
	return m, err
}

// slices returns the number of fills that set all rows: one, unless there is room between the slices.
func (b *Pitched[T]) slices() int {
	if b.rows == uint64(b.extent.Height) {
		return 1
	}
	return b.extent.Depth
}

// sliceAt returns fill i of slices.
func (b *Pitched[T]) sliceAt(row fill, i int) (rt.Copy, unsafe.Pointer, error) {
	all := b.bytes()
	rows := all.height
	if b.slices() == 1 {
		rows *= all.depth
	}
	return row.at(b.memory.ctx, b.address+driver.CUdeviceptr(uint64(i)*b.rows*b.pitch), b.pitch, rows)
}
