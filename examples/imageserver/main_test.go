//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"image"
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

// control tells the simulated driver what to do.
var control sim.Control

// TestMain runs the tests on the machine's GPU, with its NVRTC, if CUDABIND_REQUIRE_GPU is
// set, else on a simulated driver that has the kernel in Go.
func TestMain(m *testing.M) {
	os.Exit(sim.Main(m, BlurDoubles{Blur: func(_ sim.Grid, in, out []byte, width, height, dx, dy int32) {
		blurred(in, out, int(width), int(height), int(dx), int(dy))
	}}))
}

// blurred is the kernel in Go.
func blurred(in, out []byte, width, height, dx, dy int) {
	weights := []int{1, 6, 15, 20, 15, 6, 1}
	for y := range height {
		for x := range width {
			for channel := range 4 {
				sum := 32
				for k := -3; k <= 3; k++ {
					nx := min(max(x+k*dx, 0), width-1)
					ny := min(max(y+k*dy, 0), height-1)
					sum += weights[k+3] * int(in[4*(ny*width+nx)+channel])
				}
				out[4*(y*width+x)+channel] = byte(sum / 64)
			}
		}
	}
}

// needsSimulated skips a test that tells the driver what to do.
func needsSimulated(t *testing.T) {
	t.Helper()
	if onGPU {
		t.Skip("needs the simulated driver, which does what it is told")
	}
	t.Cleanup(control.Reset)
}

// hold stops the GPU until control.Hold(false), or the end of the test.
func hold(t *testing.T) {
	control.Hold(true)
	t.Cleanup(func() { control.Hold(false) }) // before anything is closed
}

// newFilter returns a filter for small pictures, and looks for leaks at the end.
func newFilter(t *testing.T, workers int) *Filter {
	t.Helper()
	f, err := NewFilter(t.Context(), workers, testPixels)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		clean(t)
	})
	return f
}

// testPixels are as many as the filters of tests take.
const testPixels = 100 * 100

// clean fails a test that has leaked objects or broken rules of CUDA.
func clean(t *testing.T) {
	t.Helper()
	if onGPU {
		return
	}
	// Another goroutine destroys some objects.
	assert.Eventually(t, func() bool { return control.Live("") == 0 }, time.Minute, time.Millisecond, control.List())
	assert.Empty(t, control.Violation())
}

// picture returns a picture with a pattern of its own for each seed.
func picture(width, height, seed int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = byte((i/4*i + seed*i) >> 3)
	}
	return m
}

// expected blurs a picture in Go.
func expected(m image.Image) *image.RGBA {
	size := m.Bounds().Size()
	rgba := image.NewRGBA(image.Rectangle{Max: size})
	for y := range size.Y {
		for x := range size.X {
			rgba.Set(x, y, m.At(m.Bounds().Min.X+x, m.Bounds().Min.Y+y))
		}
	}
	half := make([]byte, len(rgba.Pix))
	blurred(rgba.Pix, half, size.X, size.Y, 1, 0)
	blurred(half, rgba.Pix, size.X, size.Y, 0, 1)
	return rgba
}
