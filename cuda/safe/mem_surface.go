package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Surface is a way for kernels to read and write an [Array] by coordinates. A kernel
// takes it as an argument of 64 bits, by [Surface.Arg]. It keeps the array, also if that
// is closed before. Any number of goroutines may use it at once.
type Surface struct {
	memory *memory
	raw    driver.CUsurfObject
}

// NewSurface makes a surface of an array that was made for it, by
// [ArrayOptions].Surface: else the error is [ErrInvalidArgument].
// Source: cuSurfObjectCreate, and cuSurfObjectDestroy when closed.
func NewSurface[T any](a *Array[T]) (*Surface, error) {
	const op = "NewSurface"
	m, err := a.acquire(op)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if a.flags&driver.CUDA_ARRAY3D_SURFACE_LDST == 0 {
		return nil, refuse(op, ErrInvalidArgument, "the array was made without ArrayOptions.Surface")
	}
	var raw driver.CUsurfObject
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_ARRAY}
	r.Res.Array().HArray = a.raw
	own, err := reading(op, m,
		func() error { return driver.CuSurfObjectCreate(&raw, &r) },
		func() error { return driver.CuSurfObjectDestroy(raw) })
	if err != nil {
		return nil, err
	}
	return &Surface{memory: own, raw: raw}, nil
}

// Close destroys the surface when the work that uses it is done, which it waits for.
// Closing again does nothing.
func (s *Surface) Close() error {
	if s == nil {
		return nil
	}
	return s.memory.close()
}

// Raw is the surface for calls of package driver, and of the runtime API. It is 0
// once the surface is closed. Kernels that get it inside a struct need the surface in
// [LaunchConfig].Uses: see [Buffer.Raw].
func (s *Surface) Raw() driver.CUsurfObject {
	if s == nil || s.memory == nil || s.memory.Closed() {
		return 0
	}
	return s.raw
}

// Arg is the surface as an argument of a kernel of the same context. It is kept until
// the kernel is done, and so is the array.
func (s *Surface) Arg() Arg {
	if s == nil {
		return readingArg(nil, 0)
	}
	return readingArg(s.memory, uint64(s.raw))
}

// readingArg is a texture or a surface as an argument.
func readingArg(m *memory, raw uint64) Arg {
	if m == nil {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	return addressArg(m, raw)
}
