//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A kernel samples a texture of 2 x 2 texels at 4 places, with linear filtering.
func ExampleNewTexture() {
	values, err := stretch([]float32{0, 4, 0, 4})
	fmt.Println(values, err)
	// Output: [0 1 3 4] <nil>
}

func stretch(pixels []float32) ([]float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	sample, err := m.Kernel("sample")
	if err != nil {
		return nil, err
	}
	s, err := safe.NewStream(x)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	picture, err := safe.NewArray[float32](x, safe.Extent{Width: 2, Height: 2}, safe.ArrayOptions{})
	if err != nil {
		return nil, err
	}
	defer picture.Close()
	clamp := driver.CU_TR_ADDRESS_MODE_CLAMP
	texture, err := safe.NewTexture(picture, safe.TextureOptions{
		Filter:     driver.CU_TR_FILTER_MODE_LINEAR,
		Normalized: true,
		Address:    [3]driver.CUaddress_mode{clamp, clamp, clamp},
	})
	if err != nil {
		return nil, err
	}
	defer texture.Close()
	out, err := safe.NewBuffer[float32](x, 4)
	if err != nil {
		return nil, err
	}
	defer out.Close()

	if err := picture.Pitched().CopyFromHost(pixels); err != nil {
		return nil, err
	}
	// In normalized coordinates the places are 1/4 apart, and the first one is 1/8.
	err = sample.Launch(s, safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 32}},
		out.Arg(), texture.Arg(), safe.Val(uint32(4)), safe.Val(uint32(1)), safe.Val(float32(0.25)), safe.Val(float32(0.125)))
	values := make([]float32, 4)
	return values, errors.Join(err, out.CopyToHost(values))
}
