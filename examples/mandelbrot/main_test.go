//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"flag"
	"image"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the picture of docs")

// built builds the program and a simulated driver with its kernel. It returns a function
// that runs the program.
func built(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "mandelbrot")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, err = sim.Build(dir, sim.Newest)
	require.NoError(t, err)
	_, err = sim.BuildNVRTC(dir, sim.Newest)
	require.NoError(t, err)
	_, err = sim.BuildKernels(dir, "testdata/mandelbrot.c")
	require.NoError(t, err)
	return func(args ...string) (string, error) {
		cmd := command.Built(program, args...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// TestMandelbrot draws pictures and compares them with those of plain Go. The first is the
// one in docs, which -update writes.
func TestMandelbrot(t *testing.T) {
	run := built(t)
	const docs = "../../docs/mandelbrot.png"
	for _, c := range []struct {
		name          string
		width, height int
	}{
		{"docs", 960, 540},
		{"odd", 101, 77},
		{"one row", 300, 1},
		{"one pixel", 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "picture.png")
			args := []string{"-o", file, "-width", strconv.Itoa(c.width), "-height", strconv.Itoa(c.height)}
			if c.name == "docs" {
				args = args[:2] // the default size
			}
			out, err := run(args...)
			require.NoError(t, err, out)
			want := image.NewPaletted(image.Rect(0, 0, c.width, c.height), palette())
			for i := range want.Pix {
				want.Pix[i] = shade(i%c.width, i/c.width, c.width, c.height)
			}
			like(t, want, decoded(t, file))
			if c.name != "docs" {
				return
			}
			if *update {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(docs, text, 0o666))
			}
			like(t, want, decoded(t, docs))
		})
	}
}

// like compares pictures. Compilers may round differently, so that a pixel here and there gets
// another colour.
func like(t *testing.T, want *image.Paletted, got image.Image) {
	t.Helper()
	require.Equal(t, want.Bounds(), got.Bounds())
	other := 0
	for y := range want.Rect.Dy() {
		for x := range want.Rect.Dx() {
			wr, wg, wb, _ := want.At(x, y).RGBA()
			gr, gg, gb, _ := got.At(x, y).RGBA()
			if wr != gr || wg != gg || wb != gb {
				other++
			}
		}
	}
	assert.LessOrEqual(t, other, len(want.Pix)/50, "pixels of another colour")
}

// shade is the kernel in Go.
func shade(x, y, width, height int) uint8 {
	pixel := 2.3 / float32(height)
	cr, ci := float32(x-width/2)*pixel-0.7, float32(y-height/2)*pixel
	var zr, zi float32
	for n := range 500 {
		if far := zr*zr + zi*zi; far >= 256 {
			steps := float64(n) - math.Log2(math.Log2(float64(far))/8)
			return uint8(28 * math.Log2(1+max(steps, 0)))
		}
		zr, zi = zr*zr-zi*zi+cr, 2*zr*zi+ci
	}
	return 255
}

func decoded(t *testing.T, file string) image.Image {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	return picture
}

// TestRefused: wrong flags get an error that names them.
func TestRefused(t *testing.T) {
	run := built(t)
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"no width", []string{"-width", "0"}, "-width and -height must be from 1 to 32768"},
		{"too high", []string{"-height", "32769"}, "-width and -height must be from 1 to 32768"},
		{"no folder", []string{"-o", filepath.Join(t.TempDir(), "none", "picture.png")}, "no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(c.args...)
			assert.Error(t, err)
			assert.Contains(t, out, c.says)
		})
	}
}
