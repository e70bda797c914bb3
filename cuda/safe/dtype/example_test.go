package dtype_test

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

func ExampleFloat8E5M2() {
	fmt.Println(dtype.NewFloat8E5M2(0.3), dtype.NewFloat8E5M2(1000))
	// Output: 0.3125 1024
}

// The nearest numbers of a format, and back.
func ExampleFromFloat32s() {
	halves := dtype.FromFloat32s[dtype.Float16]([]float32{1, 0.1, 1e6})
	fmt.Println(halves, dtype.Float32s(halves))
	// Output: [1 0.099975586 +Inf] [1 0.099975586 +Inf]
}
