package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
)

const scale = 2 // pixels of a cell along an edge

// writePicture writes a picture of a square film to a file, or nothing if that fails half-way.
func writePicture(file string, m []float32, edge int) error {
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, picture(m, edge)); err != nil {
		return err
	}
	return os.WriteFile(file, encoded.Bytes(), 0o666)
}

// picture gives a hue to each direction in the plane. Cells that point out of it are white or black.
func picture(m []float32, edge int) image.Image {
	p := image.NewRGBA(image.Rect(0, 0, scale*edge, scale*edge))
	for y := range scale * edge {
		for x := range scale * edge {
			i := (edge-1-y/scale)*edge + x/scale // the y axis points up
			p.Set(x, y, colour(m[i], m[i+edge*edge], m[i+2*edge*edge]))
		}
	}
	return p
}

func colour(x, y, z float32) color.Color {
	angle, out := math.Atan2(float64(y), float64(x)), float64(z)
	part := func(shift float64) uint8 {
		hue := 0.5 + 0.4*math.Cos(angle-shift)
		if out > 0 {
			hue += out * (1 - hue)
		} else {
			hue += out * hue
		}
		return uint8(255 * min(max(hue, 0), 1))
	}
	return color.RGBA{part(0), part(2 * math.Pi / 3), part(4 * math.Pi / 3), 255}
}
