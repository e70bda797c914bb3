package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
)

const width, height = 640, 360 // of the plot, in pixels

// writePlot writes the plot to a file, or nothing if that fails half-way.
func writePlot(file string, losses []float32) error {
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, plot(losses)); err != nil {
		return err
	}
	return os.WriteFile(file, encoded.Bytes(), 0o666)
}

// plot draws the losses from the first step to the last, on a logarithmic scale from 3 down to
// 0.001. The lines are at 1, 0.1 and 0.01.
func plot(losses []float32) *image.Paletted {
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{
		color.White, color.Gray{210}, color.RGBA{20, 90, 200, 255},
	})
	top, bottom := math.Log10(3), -3.0
	row := func(loss float64) int {
		part := (top - math.Log10(loss)) / (top - bottom)
		if !(part > 0) { // or NaN
			return 0
		}
		return int(min(part, 1) * (height - 3))
	}
	for _, loss := range []float64{1, 0.1, 0.01} {
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
