package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// manyFunctions is a header, or else a Go file, of n documented functions.
func manyFunctions(n int, format string) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return []byte(b.String())
}

const (
	headerFunction = `
/**
 * \brief Waters bed number %[1]d
 *
 * The gardener waters every bed of roses before the sun stands over wall %[1]d.
 * \param hBed - Bed to water
 */
GARDENresult gardenWater%[1]d(GARDENbed hBed, unsigned int flags);
`
	goFunction = `
// GardenWater%[1]d gives bed %[1]d its water. By the time the sun is up all
// roses have had theirs; the flags say what else the gardener is to do.
//
//	GARDENresult gardenWater%[1]d(GARDENbed hBed, unsigned int flags);
func GardenWater%[1]d(hBed GARDENbed, flags uint32) error {
	return call(%[1]d, unsafe.Pointer(&struct{ hBed GARDENbed; flags uint32 }{hBed, flags}))
}
`
)

func BenchmarkAdd(b *testing.B) {
	source := manyFunctions(2000, headerFunction)
	b.SetBytes(int64(len(source)))
	b.ReportAllocs()
	for b.Loop() {
		newIndex().add(header{"12.4", "garden.h"}, source)
	}
}

func BenchmarkFind(b *testing.B) {
	x := newIndex()
	x.add(header{"12.4", "garden.h"}, manyFunctions(2000, headerFunction))
	text := manyFunctions(10000, goFunction)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		require.Empty(b, x.find(text))
	}
}

// BenchmarkLoad reads the real headers of all pinned versions.
func BenchmarkLoad(b *testing.B) {
	requirePinned(b)
	b.ReportAllocs()
	for b.Loop() {
		_, err := load("")
		require.NoError(b, err)
	}
}
