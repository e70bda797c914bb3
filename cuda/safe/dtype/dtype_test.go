// The types, against a search for the nearest number. Runs without a
// driver.

package dtype_test

import (
	"fmt"
	"math"
	"sort"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A smallType is one of the types, for a test of all of them.
type smallType struct {
	name               string
	exponent, mantissa int
	infinite           bool // has infinities
	saturates          bool
	round              func(float32) uint32
	float32            func(bits uint32) float32
}

var smallTypes = []smallType{
	{"Float16", 5, 10, true, false, func(v float32) uint32 { return uint32(dtype.NewFloat16(v)) }, func(b uint32) float32 { return dtype.Float16(b).Float32() }},
	{"BFloat16", 8, 7, true, false, func(v float32) uint32 { return uint32(dtype.NewBFloat16(v)) }, func(b uint32) float32 { return dtype.BFloat16(b).Float32() }},
	{"Float8E4M3", 4, 3, false, true, func(v float32) uint32 { return uint32(dtype.NewFloat8E4M3(v)) }, func(b uint32) float32 { return dtype.Float8E4M3(b).Float32() }},
	{"Float8E5M2", 5, 2, true, true, func(v float32) uint32 { return uint32(dtype.NewFloat8E5M2(v)) }, func(b uint32) float32 { return dtype.Float8E5M2(b).Float32() }},
}

// value returns the number of bits, by the definition of the format.
func (s smallType) value(b uint32) float64 {
	sign, e, m := 1.0, int(b>>s.mantissa)&(1<<s.exponent-1), int(b)&(1<<s.mantissa-1)
	if b>>(s.exponent+s.mantissa) == 1 {
		sign = -1
	}
	bias := 1<<(s.exponent-1) - 1
	switch top := e == 1<<s.exponent-1; {
	case top && s.infinite && m == 0:
		return math.Inf(int(sign))
	case top && (s.infinite || m == 1<<s.mantissa-1):
		return math.NaN()
	case e == 0:
		return sign * math.Ldexp(float64(m), 1-bias-s.mantissa)
	}
	return sign * math.Ldexp(float64(m|1<<s.mantissa), e-bias-s.mantissa)
}

// finite returns the bits of the finite numbers from 0 on, in order.
func (s smallType) finite() (bits []uint32) {
	for b := uint32(0); b < 1<<(s.exponent+s.mantissa); b++ {
		if v := s.value(b); !math.IsNaN(v) && !math.IsInf(v, 0) {
			bits = append(bits, b)
		}
	}
	return bits
}

// nearest searches all numbers for the nearest, and the even one of two.
func (s smallType) nearest(finite []uint32, v float32) uint32 {
	if v < 0 || v == 0 && math.Signbit(float64(v)) {
		return s.nearest(finite, -v) | 1<<(s.exponent+s.mantissa)
	}
	last := finite[len(finite)-1]
	// The number after the largest, if the exponent had no bound.
	next := 2*s.value(last) - s.value(last-1)
	if float64(v) >= (s.value(last)+next)/2 && !s.saturates {
		return last + 1
	}
	i := sort.Search(len(finite), func(i int) bool { return s.value(finite[i]) >= float64(v) })
	if i == len(finite) {
		return last
	}
	if i == 0 {
		return finite[0]
	}
	low, high := float64(v)-s.value(finite[i-1]), s.value(finite[i])-float64(v)
	if low < high || low == high && finite[i-1]&1 == 0 {
		return finite[i-1]
	}
	return finite[i]
}

func TestNearest(t *testing.T) {
	for _, s := range smallTypes {
		t.Run(s.name, func(t *testing.T) {
			finite := s.finite()
			check := func(v float32) {
				if want, got := s.nearest(finite, v), s.round(v); want != got {
					require.Equal(t, fmt.Sprintf("%#x", want), fmt.Sprintf("%#x", got), "%g, %#x", v, math.Float32bits(v))
				}
			}
			for b := uint32(0); b < 1<<(1+s.exponent+s.mantissa); b++ {
				v, want := s.float32(b), s.value(b)
				if math.IsNaN(want) {
					require.True(t, math.IsNaN(float64(v)), "%#x", b)
					require.True(t, math.IsNaN(float64(s.float32(s.round(v)))), "%#x", b)
					continue
				}
				require.Equal(t, math.Float64bits(want), math.Float64bits(float64(v)), "%#x", b)
				if math.IsInf(want, 0) && s.saturates {
					require.Equal(t, b-1, s.round(v))
					continue
				}
				require.Equal(t, b, s.round(v), "%g", v)
				if math.IsInf(want, 0) {
					continue
				}
				// The number itself, where it is rounded otherwise, and their neighbours.
				next := float32((want + s.value(min(b+1, finite[len(finite)-1]|b&^(1<<(s.exponent+s.mantissa)-1)))) / 2)
				for _, v := range []float32{v, next} {
					check(v)
					check(math.Nextafter32(v, float32(math.Inf(1))))
					check(math.Nextafter32(v, float32(math.Inf(-1))))
				}
			}
			for exponent := uint32(0); exponent < 0xff; exponent++ { // the whole range of float32
				for _, mantissa := range []uint32{0, 1, 1 << 22, 1<<22 + 1, 1<<23 - 1} {
					check(math.Float32frombits(exponent<<23 | mantissa))
					check(math.Float32frombits(1<<31 | exponent<<23 | mantissa))
				}
			}
		})
	}
}

func TestLimits(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		name      string
		got, want any
	}{
		{"largest Float16", dtype.NewFloat16(65519), dtype.Float16(0x7bff)},
		{"Float16 beyond", dtype.NewFloat16(65520), dtype.Float16(0x7c00)},
		{"Float16 infinity", dtype.NewFloat16(-inf).Float32(), -inf},
		{"smallest Float16", dtype.NewFloat16(5.9604645e-8), dtype.Float16(1)},
		{"half of it", dtype.NewFloat16(2.9802322e-8), dtype.Float16(0)},
		{"BFloat16 beyond", dtype.NewBFloat16(math.MaxFloat32), dtype.BFloat16(0x7f80)},
		{"E4M3 beyond", dtype.NewFloat8E4M3(1e9).Float32(), float32(448)},
		{"E4M3 infinity", dtype.NewFloat8E4M3(-inf).Float32(), float32(-448)},
		{"E5M2 beyond", dtype.NewFloat8E5M2(1e9).Float32(), float32(57344)},
		{"E5M2 infinity", dtype.NewFloat8E5M2(inf).Float32(), float32(57344)},
		{"negative zero", dtype.NewFloat16(float32(math.Copysign(0, -1))), dtype.Float16(0x8000)},
		{"text", fmt.Sprint(dtype.NewFloat16(1.5), dtype.NewBFloat16(-2), dtype.NewFloat8E4M3(448), dtype.NewFloat8E5M2(nan)), "1.5 -2 448 NaN"},
		{"slices", dtype.Float32s(dtype.FromFloat32s[dtype.BFloat16]([]float32{1, 2, 3})), []float32{1, 2, 3}},
		{"no values", dtype.FromFloat32s[dtype.Float8E4M3](nil), []dtype.Float8E4M3{}},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, test.got) })
	}
	for _, s := range smallTypes {
		assert.True(t, math.IsNaN(float64(s.float32(s.round(nan)))), s.name)
		assert.True(t, math.IsNaN(float64(s.float32(s.round(-nan)))), s.name)
	}
}
