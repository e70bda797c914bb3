package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Surface is a surface object: kernels read and write an [Array] through it by
// coordinates. A kernel takes it as a 64-bit argument, see [Surface.Arg]. It keeps the
// array alive even if that is closed first. Any number of goroutines may use it at once.
type Surface struct {
	memory *memory
	raw    driver.CUsurfObject
}

// NewSurface creates a surface of an array. It returns [ErrInvalidArgument] if the array
// was made without [ArrayOptions].Surface.
// Source: cuSurfObjectCreate, and cuSurfObjectDestroy when closed.
func NewSurface[T any](a *Array[T]) (*Surface, error) {
	const op = "NewSurface"
	m, err := a.acquire(op)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if a.flags&driver.CUDA_ARRAY3D_SURFACE_LDST == 0 {
		return nil, refuse(op, ErrInvalidArgument, "a surface needs an array made with ArrayOptions.Surface")
	}
	var raw driver.CUsurfObject
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_ARRAY}
	r.Res.Array().HArray = a.raw
	own, err := newObject(op, m,
		func() error { return driver.CuSurfObjectCreate(&raw, &r) },
		func() error { return driver.CuSurfObjectDestroy(raw) })
	if err != nil {
		return nil, err
	}
	return &Surface{memory: own, raw: raw}, nil
}

// Close waits until the work that uses the surface has completed, and destroys it.
// Closing again does nothing.
func (s *Surface) Close() error {
	if s == nil {
		return nil
	}
	return s.memory.close()
}

// Raw returns the handle for calls of package driver and of the runtime API. It returns 0
// once the surface is closed. If a kernel gets the handle inside a struct, name the
// surface in [LaunchConfig].Uses: see [Buffer.Raw].
func (s *Surface) Raw() driver.CUsurfObject {
	if s == nil || s.memory == nil || s.memory.Closed() {
		return 0
	}
	return s.raw
}

// Arg returns the surface as an argument for a kernel of the same context. The surface
// and the array stay alive until the kernel has completed.
func (s *Surface) Arg() Arg {
	if s == nil {
		return objectArg(nil, 0)
	}
	return objectArg(s.memory, uint64(s.raw))
}

// objectArg returns a texture or surface object as a kernel argument.
func objectArg(m *memory, raw uint64) Arg {
	if m == nil {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	return addressArg(m, raw)
}
