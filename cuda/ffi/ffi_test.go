package ffi_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

func TestPointer(t *testing.T) {
	type address uint64
	assert.Equal(t, uintptr(0x7f00_0000_1000), uintptr(ffi.Pointer(address(0x7f00_0000_1000))))
	assert.Nil(t, (*float32)(ffi.Pointer(uint64(0))))
}

func TestStrings(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"ascii", "cuda", "cuda"},
		{"utf-8", "größer", "größer"},
		{"ends at a zero byte", "a\x00b", "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := ffi.CString(test.text)
			assert.Equal(t, test.want, ffi.GoString(p))
			*p = 'x' // not the text's own memory
			assert.Equal(t, test.want, ffi.GoStringN([]byte(test.text)))
		})
	}
	assert.Empty(t, ffi.GoString(nil))
	assert.Empty(t, ffi.GoStringN(nil))
	assert.Equal(t, "ab", ffi.GoStringN([]byte("ab\x00cd\x00")))
}

// A kernel of a module, by its name.
func ExampleCString() {
	get := func(module driver.CUmodule) (f driver.CUfunction, err error) {
		return f, driver.CuModuleGetFunction(&f, module, ffi.CString("add"))
	}
	_, err := get(0)
	fmt.Println(err != nil)
	// Output: true
}

func TestAligned(t *testing.T) {
	for _, alignment := range []uintptr{1, 8, 16, 64, 4096} {
		for range 10 { // the heap gives other addresses each time
			p := ffi.Aligned(3+4i, alignment)
			assert.Zero(t, uintptr(unsafe.Pointer(p))%alignment)
			assert.Equal(t, 3+4i, *p)
		}
		assert.Zero(t, uintptr(unsafe.Pointer(ffi.Aligned([3]byte{1, 2, 3}, alignment)))%alignment)
	}
}
