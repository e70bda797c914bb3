//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package random_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDistributions: moments, and the test of Kolmogorov and Smirnov, of each kind and distribution.
func TestDistributions(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for _, k := range append(slices.Clone(pseudo), quasi...) {
		t.Run(k.String(), func(t *testing.T) {
			o := random.Options{Offset: 1} // the first point of a Sobol sequence is at the border
			if k == random.MTGP32 {
				o.Offset = 0
			}
			g := generator(t, x, k, o)
			uniform := func(v float64) float64 { return min(max(v, 0), 1) }
			fits(t, "uniform", take(t, g, s, samples(), random.Uniform[float32]), uniform, 0.5, math.Sqrt(1.0/12))
			fits(t, "uniform", take(t, g, s, samples(), random.Uniform[float64]), uniform, 0.5, math.Sqrt(1.0/12))
			fits(t, "normal", take(t, g, s, samples(), func(g *random.Generator, s *safe.Stream, b *safe.Buffer[float32]) error {
				return random.Normal(g, s, b, 3, 2)
			}), func(v float64) float64 { return gauss((v - 3) / 2) }, 3, 2)
			fits(t, "normal", take(t, g, s, samples(), func(g *random.Generator, s *safe.Stream, b *safe.Buffer[float64]) error {
				return random.Normal(g, s, b, -1, 0.5)
			}), func(v float64) float64 { return gauss((v + 1) / 0.5) }, -1, 0.5)
			ofLog := func(v float64) float64 { return gauss(math.Log(v) / 0.5) }
			mean := math.Exp(0.125)
			fits(t, "log-normal", take(t, g, s, samples(), func(g *random.Generator, s *safe.Stream, b *safe.Buffer[float32]) error {
				return random.LogNormal(g, s, b, 0, 0.5)
			}), ofLog, mean, mean*math.Sqrt(math.Exp(0.25)-1))
			fits(t, "log-normal", take(t, g, s, samples(), func(g *random.Generator, s *safe.Stream, b *safe.Buffer[float64]) error {
				return random.LogNormal(g, s, b, 0, 0.5)
			}), ofLog, mean, mean*math.Sqrt(math.Exp(0.25)-1))
			for _, lambda := range []float64{0.5, 3, 100} {
				fits(t, "poisson", take(t, g, s, samples(), func(g *random.Generator, s *safe.Stream, b *safe.Buffer[uint32]) error {
					return random.Poisson(g, s, b, lambda)
				}), poissonBelow(lambda), lambda, math.Sqrt(lambda))
			}
			if k < random.Sobol64 {
				fits(t, "bits", take(t, g, s, samples(), random.Bits[uint32]), func(v float64) float64 { return v / (1 << 32) }, 1<<31, (1<<32)*math.Sqrt(1.0/12))
			}
			if k < random.Sobol32 || k >= random.Sobol64 {
				fits(t, "bits", take(t, g, s, samples(), random.Bits[uint64]), func(v float64) float64 { return v / (1 << 64) }, 1<<63, (1<<64)*math.Sqrt(1.0/12))
			}
		})
	}
}

// samples is an odd number, so that the normals take scratch memory.
func samples() int {
	if onGPU {
		return 1<<20 + 1
	}
	return 20001
}

func gauss(v float64) float64 { return math.Erfc(-v/math.Sqrt2) / 2 }

// poissonBelow is the probability of at most v.
func poissonBelow(lambda float64) func(v float64) float64 {
	return func(v float64) (sum float64) {
		for k := 0.0; k <= v; k++ {
			logFactorial, _ := math.Lgamma(k + 1)
			sum += math.Exp(k*math.Log(lambda) - lambda - logFactorial)
		}
		return sum
	}
}

// fits compares values with a distribution, by limits that chance exceeds once in 100,000 times.
func fits[T uint32 | uint64 | float32 | float64](t *testing.T, name string, values []T, below func(float64) float64, mean, deviation float64) {
	t.Helper()
	n := float64(len(values))
	sum, squares := 0.0, 0.0
	for _, v := range values {
		d := (float64(v) - mean) / deviation
		sum, squares = sum+d, squares+d*d
	}
	assert.Less(t, math.Abs(sum)/math.Sqrt(n), 4.5, "%s of %T: the mean is %v, not %v", name, values[0], mean+deviation*sum/n, mean)
	assert.InDelta(t, 1, squares/n, 20/math.Sqrt(n), "%s of %T: the variance beside that of the distribution", name, values[0])

	slices.Sort(values)
	largest := 0.0
	for i := 0; i < len(values); {
		next := i
		for next < len(values) && values[next] == values[i] {
			next++
		}
		p := below(float64(values[i]))
		largest = max(largest, math.Abs(p-float64(next)/n))
		if next == i+1 {
			largest = max(largest, math.Abs(p-float64(i)/n))
		}
		i = next
	}
	assert.Less(t, largest*math.Sqrt(n), 2.5, "%s of %T: the largest distance of the distributions", name, values[0])
}

// TestRaw: the numbers are those of raw cuRAND with the same seed.
func TestRaw(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for k, raw := range map[random.Kind]curand.CurandRngType{
		random.Philox: curand.CURAND_RNG_PSEUDO_PHILOX4_32_10, random.XORWOW: curand.CURAND_RNG_PSEUDO_XORWOW,
		random.MRG32k3a: curand.CURAND_RNG_PSEUDO_MRG32K3A, random.MTGP32: curand.CURAND_RNG_PSEUDO_MTGP32, random.Sobol32: curand.CURAND_RNG_QUASI_SOBOL32,
		random.ScrambledSobol32: curand.CURAND_RNG_QUASI_SCRAMBLED_SOBOL32,
	} {
		const seed = 1 << 40
		var r curand.CurandGenerator_t
		require.NoError(t, x.WithoutCaptures(func() error {
			if err := curand.CurandCreateGenerator(&r, raw); err != nil || k >= random.Sobol32 {
				return err
			}
			return curand.CurandSetPseudoRandomGeneratorSeed(r, seed)
		}))
		o := random.Options{Seed: seed}
		if k >= random.Sobol32 {
			o.Seed = 0
		}
		g := generator(t, x, k, o)
		const n = 10000
		sameAsRaw(t, g, s, n, random.Uniform[float32], func(p *float32) error { return curand.CurandGenerateUniform(r, p, n) }, r)
		sameAsRaw(t, g, s, n, random.Uniform[float64], func(p *float64) error { return curand.CurandGenerateUniformDouble(r, p, n) }, r)
		sameAsRaw(t, g, s, n, normal[float32], func(p *float32) error { return curand.CurandGenerateNormal(r, p, n, 0, 1) }, r)
		odd := n - 1 // which takes n of a pseudo-random sequence
		if k >= random.Sobol32 {
			odd = n
		}
		sameAsRaw(t, g, s, odd, normal[float32], func(p *float32) error { return curand.CurandGenerateNormal(r, p, n, 0, 1) }, r)
		sameAsRaw(t, g, s, n, normal[float64], func(p *float64) error { return curand.CurandGenerateNormalDouble(r, p, n, 0, 1) }, r)
		sameAsRaw(t, g, s, n, logNormal[float32], func(p *float32) error { return curand.CurandGenerateLogNormal(r, p, n, 0, 1) }, r)
		sameAsRaw(t, g, s, n, logNormal[float64], func(p *float64) error { return curand.CurandGenerateLogNormalDouble(r, p, n, 0, 1) }, r)
		sameAsRaw(t, g, s, n, poisson, func(p *uint32) error { return curand.CurandGeneratePoisson(r, p, n, 3) }, r)
		sameAsRaw(t, g, s, n, random.Bits[uint32], func(p *uint32) error { return curand.CurandGenerate(r, p, n) }, r)
		require.NoError(t, x.WithoutCaptures(func() error { return curand.CurandDestroyGenerator(r) }))
	}
}

// sameAsRaw compares n numbers with the first of those that generate fills.
func sameAsRaw[T comparable](t *testing.T, g *random.Generator, s *safe.Stream, n int, f func(*random.Generator, *safe.Stream, *safe.Buffer[T]) error, generate func(*T) error, r curand.CurandGenerator_t) {
	t.Helper()
	b := buffer[T](t, g.Context(), n+n%2)
	require.NoError(t, s.EnqueueRaw(func(raw driver.CUstream) error {
		if err := curand.CurandSetStream(r, raw); err != nil {
			return err
		}
		return generate((*T)(ffi.Pointer(b.Raw())))
	}, b.Arg()))
	want := download(t, b)
	same(t, want[:n], take(t, g, s, n, f), "%v: %T", g, *new(T))
}
