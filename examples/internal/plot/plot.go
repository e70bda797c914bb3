// Package plot draws how the loss of a training falls.
package plot

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
)

const width, height = 640, 360 // of the plot, in pixels

// Write writes a plot of the losses as a PNG to a file, or nothing if that fails half-way. The
// scale is logarithmic, from most down to least, with lines at some losses.
func Write(file string, losses []float32, most, least float64, lines ...float64) error {
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, Draw(losses, most, least, lines...)); err != nil {
		return err
	}
	return os.WriteFile(file, encoded.Bytes(), 0o666)
}

// Draw draws what [Write] writes.
func Draw(losses []float32, most, least float64, lines ...float64) *image.Paletted {
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{
		color.White, color.Gray{210}, color.RGBA{20, 90, 200, 255},
	})
	top, bottom := math.Log10(most), math.Log10(least)
	row := func(loss float64) int {
		part := (top - math.Log10(loss)) / (top - bottom)
		if !(part > 0) { // or NaN
			return 0
		}
		return int(min(part, 1) * (height - 3))
	}
	for _, loss := range lines {
		for x := range width {
			m.SetColorIndex(x, row(loss), 1)
		}
	}
	before := row(float64(losses[0]))
	for x := range width {
		y := row(float64(losses[x*(len(losses)-1)/(width-1)]))
		for i := min(before, y); i <= max(before, y)+2; i++ { // joined, and 3 pixels thick
			m.SetColorIndex(x, i, 2)
		}
		before = y
	}
	return m
}
