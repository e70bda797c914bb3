//go:build (linux && (amd64 || arm64) && (cgo || cudabind_nocgo)) || (windows && amd64)

package driver_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/internal/cloop"
)

// The benchmarks measure what a call costs beside the same call in a loop of C,
// and beside a call into C that does nothing. A process keeps its library, so
// those against the fake driver and those on a GPU want a run each:
//
//	go test -run '^$' -bench Fake ./cuda/generated/driver
//	go test -run '^$' -bench GPU ./cuda/generated/driver
//
// Without cgo there are no loops of C to compare with.

func BenchmarkFake(b *testing.B) {
	_, file := library(b, fakeSource)
	if err := driver.Open(file); err != nil {
		b.Skip(err)
	}
	benchmarkEmpty(b)
	benchmarkVersion(b, file)
	benchmarkQuery(b, file, "done", 0)
	benchmarkQuery(b, file, "not ready", 600)
	benchmarkLaunch(b, file, 0, 0)
}

func benchmarkEmpty(b *testing.B) {
	if withCgo {
		b.Run("empty cgo call", func(b *testing.B) {
			for b.Loop() {
				cloop.Empty()
			}
		})
	}
}

// benchmarkVersion has a result on the stack.
func benchmarkVersion(b *testing.B, file string) {
	b.Run("version/go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var version int32
			if driver.CuDriverGetVersion(&version) != nil {
				b.Fatal()
			}
		}
	})
	inC(b, "version", func(b *testing.B) {
		cloop.Version.Run(b.N, cloop.Symbol(file, "cuDriverGetVersion"))
	})
}

func benchmarkQuery(b *testing.B, file, name string, stream driver.CUstream) {
	b.Run("query "+name+"/go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			driver.CuStreamQuery(stream)
		}
	})
	inC(b, "query "+name, func(b *testing.B) {
		cloop.Query.Run(b.N, cloop.Symbol(file, "cuStreamQuery"), uintptr(stream))
	})
}

// benchmarkLaunch calls a function of 11 arguments.
func benchmarkLaunch(b *testing.B, file string, function driver.CUfunction, stream driver.CUstream) {
	b.Run("launch/go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if driver.CuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nil, nil) != nil {
				b.Fatal()
			}
		}
	})
	inC(b, "launch", func(b *testing.B) {
		cloop.Launch0.Run(b.N, cloop.Symbol(file, "cuLaunchKernel"), uintptr(function), uintptr(stream))
	})
}

func inC(b *testing.B, name string, f func(b *testing.B)) {
	if withCgo {
		b.Run(name+"/c", f)
	}
}
