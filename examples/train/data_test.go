//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"image"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestData: points and parameters are the same in each run.
func TestData(t *testing.T) {
	points, labels := spiral(7)
	again, _ := spiral(7)
	assert.Equal(t, again, points)
	assert.Equal(t, []int32{0, 1, 2, 0, 1, 2, 0}, labels)
	for i := range labels {
		assert.InDelta(t, (float64(i)+0.5)/7, math.Hypot(float64(points[2*i]), float64(points[2*i+1])), 1e-6, "from the centre to point %d", i)
	}
	r := random(1)
	assert.Equal(t, float64((1664525+1013904223)>>8)/(1<<24), r.next())

	parameters := initial()
	assert.Equal(t, initial(), parameters)
	require.Len(t, parameters, 3*64+65*64+65*3)
	assert.NotContains(t, parameters[:2*64], float32(0), "weights")
	assert.Equal(t, make([]float32, 64), parameters[2*64:3*64], "biases")
	assert.Equal(t, make([]float32, 3), parameters[len(parameters)-3:], "biases")
}

// TestPython: train.py begins with the same points and parameters.
func TestPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("python3", "-B", "-c", "import json, train; print(json.dumps([*train.spiral(99), train.initial()]))").Output()
	require.NoError(t, err)
	var points [][2]float64
	var labels []int32
	var parameters []float64
	require.NoError(t, json.Unmarshal(out, &[]any{&points, &labels, &parameters}))
	wantPoints, wantLabels := spiral(99)
	var flat []float64
	for _, p := range points {
		flat = append(flat, p[:]...)
	}
	assert.Equal(t, wantLabels, labels)
	assert.InDeltaSlice(t, wantPoints, flat, 1e-6)
	assert.InDeltaSlice(t, initial(), parameters, 1e-6)
}

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
			require.NoError(t, writePlot(file, c.losses))
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
