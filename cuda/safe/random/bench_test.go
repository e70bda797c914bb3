//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package random_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/stretchr/testify/require"
)

// BenchmarkCall measures the host's part of small calls, beside those of raw cuRAND.
func BenchmarkCall(b *testing.B) {
	needsGPU(b)
	x := open(b)
	streams := [2]*safe.Stream{stream(b, x), stream(b, x)}
	buf := buffer[float32](b, x, 4096)
	odd, err := buf.Slice(0, 4095)
	require.NoError(b, err)
	run := func(name string, f func(i int) error) {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				if err := f(i); err != nil {
					b.Fatal(err)
				}
				if i%200 == 199 { // the queue has 1,000 places or so: measure no waiting for it
					b.StopTimer()
					require.NoError(b, x.Wait(b.Context()))
					b.StartTimer()
				}
			}
		})
	}
	g := generator(b, x, random.Philox, random.Options{})
	var raw curand.CurandGenerator_t
	require.NoError(b, x.WithoutCaptures(func() error { return curand.CurandCreateGenerator(&raw, curand.CURAND_RNG_PSEUDO_PHILOX4_32_10) }))
	address := (*float32)(ffi.Pointer(buf.Raw()))
	require.NoError(b, x.WithCurrent(func() error {
		run("raw", func(int) error { return curand.CurandGenerateUniform(raw, address, 4096) })
		return nil
	}))
	run("EnqueueRaw", func(int) error {
		return streams[0].EnqueueRaw(func(driver.CUstream) error { return curand.CurandGenerateUniform(raw, address, 4096) }, buf.Arg())
	})
	require.NoError(b, x.WithoutCaptures(func() error { return curand.CurandDestroyGenerator(raw) }))
	run("Uniform", func(int) error { return random.Uniform(g, streams[0], buf) })
	run("Uniform on two streams", func(i int) error { return random.Uniform(g, streams[i%2], buf) })
	run("Normal, odd", func(int) error { return normal(g, streams[0], odd) })
	run("Seek", func(i int) error {
		if err := g.Seek(uint64(i)); err != nil {
			return err
		}
		return random.Uniform(g, streams[0], buf)
	})
	xorwow := generator(b, x, random.XORWOW, random.Options{})
	run("XORWOW, Uniform", func(int) error { return random.Uniform(xorwow, streams[0], buf) })
	run("XORWOW, Seek", func(i int) error {
		if err := xorwow.Seek(uint64(i)); err != nil {
			return err
		}
		return random.Uniform(xorwow, streams[0], buf)
	})
}

// BenchmarkFill measures the GPU's part of large calls.
func BenchmarkFill(b *testing.B) {
	needsGPU(b)
	x := open(b)
	s := stream(b, x)
	const n = 1 << 26
	buf := buffer[float32](b, x, n+1)
	even, err := buf.Slice(0, n)
	require.NoError(b, err)
	bits := buffer[uint32](b, x, n)
	for _, k := range []random.Kind{random.Philox, random.XORWOW, random.MRG32k3a, random.MTGP32, random.Sobol32} {
		g := generator(b, x, k, random.Options{})
		for name, f := range map[string]func() error{
			"uniform": func() error { return random.Uniform(g, s, even) },
			"normal":  func() error { return normal(g, s, even) },
			"odd":     func() error { return normal(g, s, buf) },
			"poisson": func() error { return random.Poisson(g, s, bits, 3) },
		} {
			b.Run(fmt.Sprint(k, "/", name), func(b *testing.B) {
				require.NoError(b, f())
				require.NoError(b, s.Synchronize())
				begin := time.Now()
				for range b.N {
					require.NoError(b, f())
				}
				require.NoError(b, s.Synchronize())
				b.ReportMetric(n*float64(b.N)/time.Since(begin).Seconds()/1e9, "G/s")
			})
		}
	}
}
