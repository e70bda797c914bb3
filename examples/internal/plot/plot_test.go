package plot

import (
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlot: the curve is where the losses are, whatever they are.
func TestPlot(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name        string
		losses      []float32
		first, last int // rows
	}{
		{"falling", []float32{3, 1, 0.1, 0.001}, 0, 357},
		{"rising", []float32{1e-9, 9}, 357, 0},
		{"one", []float32{0.1}, 151, 151},
		{"none", []float32{0, 0}, 357, 357},
		{"no numbers", []float32{nan, inf, -1, nan}, 0, 0},
		{"many", append(make([]float32, 5000), 3), 357, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "loss.png")
			require.NoError(t, Write(file, c.losses, 3, 0.001, 1, 0.1, 0.01))
			picture := decoded(t, file)
			require.Equal(t, image.Rect(0, 0, width, height), picture.Bounds())
			blue := func(x, y int) bool { r, _, b, _ := picture.At(x, y).RGBA(); return r < b }
			for x := range width {
				n := 0
				for y := range height {
					if blue(x, y) {
						n++
					}
				}
				require.GreaterOrEqual(t, n, 3, "column %d", x)
			}
			assert.True(t, blue(0, c.first+1), "first")
			assert.True(t, blue(width-1, c.last+1), "last")
		})
	}
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
