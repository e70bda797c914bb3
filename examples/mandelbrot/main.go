// Command mandelbrot draws the Mandelbrot set on the GPU, and writes it as a PNG:
//
//	go run github.com/cudabind/cudabind/examples/mandelbrot -o mandelbrot.png
package main

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/png"
	"log"
	"math"
	"os"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

//go:generate go run ../../tools/kernels mandelbrot.cu

func main() {
	log.SetFlags(0)
	file := flag.String("o", "mandelbrot.png", "write the picture to this `file`")
	width := flag.Int("width", 960, "width of the picture in `pixels`")
	height := flag.Int("height", 540, "height of the picture in `pixels`")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("mandelbrot: unexpected argument %q", flag.Arg(0))
	}
	if min(*width, *height) < 1 || max(*width, *height) > 32768 {
		log.Fatal("mandelbrot: -width and -height must be from 1 to 32768")
	}
	picture := &image.Paletted{
		Pix:     shades(*width, *height),
		Stride:  *width,
		Rect:    image.Rect(0, 0, *width, *height),
		Palette: palette(),
	}
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, picture); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*file, encoded.Bytes(), 0o666); err != nil {
		log.Fatal(err)
	}
}

// shades runs the kernel and returns the shades of all pixels, row by row.
func shades(width, height int) []byte {
	x := must(safe.Open(0))
	kernels := must(LoadMandelbrot(context.Background(), x, compile.Options{}))
	stream := must(safe.NewStream(x))
	shades := must(safe.NewBuffer[byte](x, width*height))
	err := kernels.Mandelbrot.Launch(stream, safe.Threads2D(width, height), shades, int32(width), int32(height))
	if err != nil {
		log.Fatal(err)
	}
	return must(shades.Download()) // waits for the kernel
}

// palette returns a colour for each shade: waves of blue, white and orange, and black for the set.
func palette() color.Palette {
	wave := func(angle float64) uint8 { return uint8(127.5 - 127.5*math.Cos(angle)) }
	colours := make(color.Palette, 256)
	for shade := range colours {
		angle := float64(shade)/25 - 1
		colours[shade] = color.RGBA{wave(angle - 0.7), wave(angle - 0.3), wave(angle + 0.3), 255}
	}
	colours[255] = color.Black
	return colours
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
