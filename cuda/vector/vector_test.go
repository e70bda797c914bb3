package vector_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/vector"
	"github.com/stretchr/testify/assert"
)

// TestSizes compares the sizes with those of the vector types of CUDA: as many values as the name says.
func TestSizes(t *testing.T) {
	for _, test := range []struct {
		name  string
		value uintptr // the size of one
		sizes [4]uintptr
	}{
		{"Char", 1, sizes(vector.Char1{}, vector.Char2{}, vector.Char3{}, vector.Char4{})},
		{"UChar", 1, sizes(vector.UChar1{}, vector.UChar2{}, vector.UChar3{}, vector.UChar4{})},
		{"Short", 2, sizes(vector.Short1{}, vector.Short2{}, vector.Short3{}, vector.Short4{})},
		{"UShort", 2, sizes(vector.UShort1{}, vector.UShort2{}, vector.UShort3{}, vector.UShort4{})},
		{"Int", 4, sizes(vector.Int1{}, vector.Int2{}, vector.Int3{}, vector.Int4{})},
		{"UInt", 4, sizes(vector.UInt1{}, vector.UInt2{}, vector.UInt3{}, vector.UInt4{})},
		{"LongLong", 8, sizes(vector.LongLong1{}, vector.LongLong2{}, vector.LongLong3{}, vector.LongLong4{})},
		{"ULongLong", 8, sizes(vector.ULongLong1{}, vector.ULongLong2{}, vector.ULongLong3{}, vector.ULongLong4{})},
		{"Float", 4, sizes(vector.Float1{}, vector.Float2{}, vector.Float3{}, vector.Float4{})},
		{"Double", 8, sizes(vector.Double1{}, vector.Double2{}, vector.Double3{}, vector.Double4{})},
	} {
		for i, size := range test.sizes {
			t.Run(fmt.Sprint(test.name, i+1), func(t *testing.T) { assert.Equal(t, test.value*uintptr(i+1), size) })
		}
	}
	assert.EqualValues(t, 12, unsafe.Sizeof(vector.Dim3{}))
}

func sizes[A, B, C, D any](a A, b B, c C, d D) [4]uintptr {
	return [4]uintptr{unsafe.Sizeof(a), unsafe.Sizeof(b), unsafe.Sizeof(c), unsafe.Sizeof(d)}
}
