//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBoxesOutOfBounds: what leaves its memory is refused, and not done.
func TestBoxesOutOfBounds(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	p, q := memory(t, 100), memory(t, 100)
	good := driver.CUDA_MEMCPY3D{
		SrcMemoryType: driver.CU_MEMORYTYPE_DEVICE, SrcDevice: p, SrcPitch: 10, SrcHeight: 5,
		DstMemoryType: driver.CU_MEMORYTYPE_DEVICE, DstDevice: q, DstPitch: 10, DstHeight: 5,
		WidthInBytes: 10, Height: 5, Depth: 2,
	}
	require.NoError(t, driver.CuMemcpy3DAsync(&good, s))
	for name, change := range map[string]func(c *driver.CUDA_MEMCPY3D){
		"a byte to the right":  func(c *driver.CUDA_MEMCPY3D) { c.SrcXInBytes = 1 },
		"a row down":           func(c *driver.CUDA_MEMCPY3D) { c.DstY = 1 },
		"a slice further":      func(c *driver.CUDA_MEMCPY3D) { c.DstZ = 1 },
		"a slice more":         func(c *driver.CUDA_MEMCPY3D) { c.Depth = 3 },
		"a byte further":       func(c *driver.CUDA_MEMCPY3D) { c.SrcDevice++ },
		"rows that overlap":    func(c *driver.CUDA_MEMCPY3D) { c.SrcPitch = 9 },
		"slices that overlap":  func(c *driver.CUDA_MEMCPY3D) { c.SrcHeight = 4 },
		"an endless pitch":     func(c *driver.CUDA_MEMCPY3D) { c.DstPitch = 1 << 31 },
		"a level":              func(c *driver.CUDA_MEMCPY3D) { c.SrcLOD = 1 },
		"no kind of memory":    func(c *driver.CUDA_MEMCPY3D) { c.SrcMemoryType = 0 },
		"a word that is not 0": func(c *driver.CUDA_MEMCPY3D) { c.Reserved0 = unsafe.Pointer(c) },
	} {
		c := good
		change(&c)
		assert.ErrorIs(t, driver.CuMemcpy3DAsync(&c, s), invalid, name)
	}
	for name, err := range map[string]error{
		"a pitch below the width": driver.CuMemsetD2D8Async(p, 9, 1, 10, 2, s),
		"a row too many":          driver.CuMemsetD2D8Async(p, 10, 1, 10, 11, s),
		"an odd address":          driver.CuMemsetD2D16Async(p+1, 10, 1, 2, 2, s),
		"an odd pitch":            driver.CuMemsetD2D32Async(p, 10, 1, 2, 2, s),
	} {
		assert.ErrorIs(t, err, invalid, name)
	}
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Empty(t, control.Violation())
}

// TestArrayGone: an array that is used after its end is found, and a texture of it ends.
func TestArrayGone(t *testing.T) {
	primary(t, 0)
	var a driver.CUarray
	require.NoError(t, driver.CuArray3DCreate(&a, &driver.CUDA_ARRAY3D_DESCRIPTOR{Width: 4, Height: 4, Format: driver.CU_AD_FORMAT_FLOAT, NumChannels: 1}))
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_ARRAY}
	r.Res.Array().HArray = a
	var u driver.CUtexObject
	require.NoError(t, driver.CuTexObjectCreate(&u, &r, &driver.CUDA_TEXTURE_DESC{}, nil))
	require.NoError(t, driver.CuArrayDestroy(a))
	assert.ErrorIs(t, driver.CuArrayDestroy(a), driver.CUDA_ERROR_INVALID_HANDLE)
	violated(t, "a CUDA array is used that was destroyed")
	require.NoError(t, driver.CuTexObjectDestroy(u))
}
