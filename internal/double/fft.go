//go:build linux && (cgo || cudabind_nocgo)

package double

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// scalers registers the kernels by which package fft scales.
func scalers(c sim.Control) error {
	return errors.Join(
		c.Kernel("cudabind_fft_scale16", func(_ sim.Grid, v []dtype.Float16, n uint64, f float32, _ [8]uint64) { scaleHalf(v, n, f, nil) }),
		c.Kernel("cudabind_fft_scale16_strided", func(_ sim.Grid, v []dtype.Float16, n uint64, f float32, s [8]uint64) { scaleHalf(v, n, f, &s) }),
		c.Kernel("cudabind_fft_scale32", func(_ sim.Grid, v []float32, n uint64, f float32, _ [8]uint64) { scale(v, n, f, nil) }),
		c.Kernel("cudabind_fft_scale32_strided", func(_ sim.Grid, v []float32, n uint64, f float32, s [8]uint64) { scale(v, n, f, &s) }),
		c.Kernel("cudabind_fft_scale64", func(_ sim.Grid, v []float64, n uint64, f float64, _ [8]uint64) { scale(v, n, f, nil) }),
		c.Kernel("cudabind_fft_scale64_strided", func(_ sim.Grid, v []float64, n uint64, f float64, s [8]uint64) { scale(v, n, f, &s) }))
}

func scale[T float32 | float64](v []T, n uint64, f T, steps *[8]uint64) {
	for i := range n {
		v[place(i, steps)] *= f
	}
}

func scaleHalf(v []dtype.Float16, n uint64, f float32, steps *[8]uint64) {
	for i := range n {
		at := place(i, steps)
		v[at] = dtype.NewFloat16(v[at].Float32() * f)
	}
}

// place is where number i lies.
func place(i uint64, steps *[8]uint64) uint64 {
	if steps == nil {
		return i
	}
	at, i := i%steps[0], i/steps[0]
	for d := 1; d < 4; d++ {
		at += i % steps[d] * steps[3+d]
		i /= steps[d]
	}
	return at + i*steps[7]
}
