// Package dtype has the floating-point types of 8 and 16 bits that CUDA has and Go lacks, for values in device memory.
// The packages safe, blas and collective know them.
package dtype

import (
	"math"
	"strconv"
)

// Float16 is a number of IEEE 754's 16-bit format (CUDA's half), for values in device
// memory. It has 11 significant bits and numbers up to 65504. The uint16 holds the bits:
// make a Float16 by [NewFloat16], as the conversion Float16(2) does not convert the
// number 2.
type Float16 uint16

// BFloat16 is a number of the 16-bit format bfloat16 (CUDA's __nv_bfloat16): the upper
// half of a float32, with 8 significant bits. The uint16 holds the bits: make a BFloat16
// by [NewBFloat16].
type BFloat16 uint16

// Float8E4M3 is a number of the 8-bit format E4M3 (CUDA's __nv_fp8_e4m3). It has 4
// significant bits, numbers up to 448, and NaN, but no infinity. The uint8 holds the bits:
// make a Float8E4M3 by [NewFloat8E4M3].
type Float8E4M3 uint8

// Float8E5M2 is a number of the 8-bit format E5M2 (CUDA's __nv_fp8_e5m2). It has 3
// significant bits, numbers up to 57344, infinities and NaN. The uint8 holds the bits:
// make a Float8E5M2 by [NewFloat8E5M2].
type Float8E5M2 uint8

// NewFloat16 rounds v to the nearest Float16, ties to even. Numbers from 65520 on become infinite. NaN stays NaN.
func NewFloat16(v float32) Float16 { return Float16(half.round(v)) }

// NewBFloat16 rounds v to the nearest BFloat16, ties to even. Numbers beyond the range become infinite. NaN stays NaN.
func NewBFloat16(v float32) BFloat16 { return BFloat16(brain.round(v)) }

// NewFloat8E4M3 rounds v to the nearest Float8E4M3, ties to even. Numbers beyond the range, and infinities, become 448
// or -448, as with CUDA's own conversions. NaN stays NaN.
func NewFloat8E4M3(v float32) Float8E4M3 { return Float8E4M3(e4m3.round(v)) }

// NewFloat8E5M2 rounds v to the nearest Float8E5M2, ties to even. Numbers beyond the range, and infinities, become
// 57344 or -57344, as with CUDA's own conversions. NaN stays NaN.
func NewFloat8E5M2(v float32) Float8E5M2 { return Float8E5M2(e5m2.round(v)) }

// Float32 returns the same number as a float32.
func (f Float16) Float32() float32 { return half.float32(uint32(f)) }

// Float32 returns the same number as a float32.
func (f BFloat16) Float32() float32 { return math.Float32frombits(uint32(f) << 16) }

// Float32 returns the same number as a float32.
func (f Float8E4M3) Float32() float32 { return e4m3.float32(uint32(f)) }

// Float32 returns the same number as a float32.
func (f Float8E5M2) Float32() float32 { return e5m2.float32(uint32(f)) }

// String returns the number in decimal.
func (f Float16) String() string { return decimal(f.Float32()) }

// String returns the number in decimal.
func (f BFloat16) String() string { return decimal(f.Float32()) }

// String returns the number in decimal.
func (f Float8E4M3) String() string { return decimal(f.Float32()) }

// String returns the number in decimal.
func (f Float8E5M2) String() string { return decimal(f.Float32()) }

func decimal(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }

// Float is the constraint of the types of this package.
type Float interface {
	Float16 | BFloat16 | Float8E4M3 | Float8E5M2
	Float32() float32
}

// FromFloat32s rounds every number of v: see [NewFloat16] and the like.
func FromFloat32s[T Float](v []float32) []T {
	out := make([]T, len(v))
	f := formatFor[T]()
	for i := range v {
		out[i] = T(f.round(v[i]))
	}
	return out
}

// Float32s returns the numbers of v as float32s.
func Float32s[T Float](v []T) []float32 {
	out := make([]float32, len(v))
	for i := range v {
		out[i] = v[i].Float32()
	}
	return out
}

// A format is a floating-point format: a sign bit, an exponent, a mantissa.
type format struct {
	exponent, mantissa int    // bits
	largest            uint32 // finite number, as bits
	infinite           bool   // the next bits stand for infinity; all others for NaN
	saturates          bool   // larger numbers become the largest, else infinity
	nan                uint32
}

var (
	half  = &format{exponent: 5, mantissa: 10, largest: 0x7bff, infinite: true, nan: 0x7e00}
	brain = &format{exponent: 8, mantissa: 7, largest: 0x7f7f, infinite: true, nan: 0x7fc0}
	e4m3  = &format{exponent: 4, mantissa: 3, largest: 0x7e, saturates: true, nan: 0x7f}
	e5m2  = &format{exponent: 5, mantissa: 2, largest: 0x7b, infinite: true, saturates: true, nan: 0x7e}
)

func formatFor[T Float]() *format {
	switch any(T(0)).(type) {
	case Float16:
		return half
	case BFloat16:
		return brain
	case Float8E4M3:
		return e4m3
	}
	return e5m2
}

func (f *format) bias() int { return 1<<(f.exponent-1) - 1 }

const (
	bits32     = 23 // of a float32's mantissa
	bias32     = 127
	infinity32 = 0xff << bits32
)

// round returns the bits of the number nearest to v, the even one of two.
func (f *format) round(v float32) uint32 {
	all := math.Float32bits(v)
	sign, size := all>>31<<(f.exponent+f.mantissa), all&^(1<<31)
	if size > infinity32 {
		return sign | f.nan
	}
	// |v| is number * 2^(exponent-bias32-bits32).
	exponent, number := max(int(size>>bits32), 1), size&(1<<bits32-1)
	if size>>bits32 > 0 {
		number |= 1 << bits32
	}
	exponent += f.bias() - bias32
	drop := bits32 - f.mantissa
	if exponent < 1 { // subnormal in this format
		drop = min(drop+1-exponent, bits32+2) // which drops everything
		exponent = 1
	}
	kept, rest, tie := number>>drop, number&(1<<drop-1), uint32(1)<<(drop-1)
	if rest > tie || rest == tie && kept&1 == 1 {
		kept++
	}
	// The top bit of kept, if set, adds 1 to the exponent, and so does a carry.
	out := uint32(exponent-1)<<f.mantissa + kept
	switch {
	case out <= f.largest:
	case f.saturates:
		out = f.largest
	default:
		out = f.largest + 1
	}
	return sign | out
}

// float32 undoes round.
func (f *format) float32(b uint32) float32 {
	sign := b >> (f.exponent + f.mantissa) << 31
	size := b & (1<<(f.exponent+f.mantissa) - 1)
	exponent := int(size >> f.mantissa)
	var v uint32
	switch {
	case f.infinite && size == f.largest+1:
		v = infinity32
	case size > f.largest:
		v = math.Float32bits(float32(math.NaN()))
	case exponent == 0: // subnormal
		v = math.Float32bits(float32(math.Ldexp(float64(size), 1-f.bias()-f.mantissa)))
	default:
		v = uint32(exponent+bias32-f.bias())<<bits32 | size<<(bits32-f.mantissa)&(1<<bits32-1)
	}
	return math.Float32frombits(sign | v)
}
