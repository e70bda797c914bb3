//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package fft_test

import (
	"errors"
	"fmt"
	"log"
	"math/cmplx"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/fft"
)

// powers returns how strong each frequency of a signal is.
func powers(x *safe.Context, s *safe.Stream, signal []float32) ([]float64, error) {
	p, err := fft.New[float32, complex64](x, fft.Shape{N: []int{len(signal)}}, fft.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	in, err := safe.Upload(x, signal)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	_, n := p.Lens() // len(signal)/2 + 1
	out, err := safe.NewBuffer[complex64](x, n)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if err := p.Forward(s, in, out); err != nil {
		return nil, err
	}
	spectrum, err := out.Download() // waits for the transform
	if err != nil {
		return nil, err
	}
	result := make([]float64, n)
	for i, v := range spectrum {
		result[i] = cmplx.Abs(complex128(v))
	}
	return result, nil
}

// smooth enqueues a filter of n images, which keeps their low frequencies: keep enqueues a
// kernel that works on the spectra.
func smooth(p *fft.Plan[float32, complex64], s *safe.Stream, images *safe.Buffer[float32], spectra *safe.Buffer[complex64], keep func() error) error {
	if err := p.Forward(s, images, spectra); err != nil {
		return err
	}
	if err := keep(); err != nil {
		return err
	}
	return p.Inverse(s, spectra, images)
}

// spectrogram enqueues the spectra of windows of a signal, each by a hop after the one before.
func spectrogram(c *fft.Cache, s *safe.Stream, window, hop, count int, signal *safe.Buffer[float32], spectra *safe.Buffer[complex64]) error {
	shape := fft.Shape{N: []int{window}, Batch: count, In: fft.Layout{Distance: hop}}
	return fft.Forward(c, s, shape, signal, spectra)
}

func ExampleNew() {
	x, err := safe.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	strengths, err := powers(x, s, []float32{1, -1, 1, -1, 1, -1, 1, -1})
	fmt.Printf("%.0f %v\n", strengths, err)
	// Output: [0 0 0 0 8] <nil>
}

func ExampleForward() {
	x, err := safe.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	c, err := fft.NewCache(x, fft.CacheOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	signal, err := safe.Upload(x, []float32{1, 1, 1, 1, 0, 0, 0, 0})
	if err != nil {
		log.Fatal(err)
	}
	defer signal.Close()
	spectra, err := safe.NewBuffer[complex64](x, 3*3)
	if err != nil {
		log.Fatal(err)
	}
	defer spectra.Close()
	if err := spectrogram(c, s, 4, 2, 3, signal, spectra); err != nil {
		log.Fatal(err)
	}
	v, err := spectra.Download()
	fmt.Println(v[0], v[3], v[6], err)
	// Output: (4+0i) (2+0i) (0+0i) <nil>
}

func ExampleShape_inPlace() {
	x, err := safe.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	const batch, height, width = 2, 4, 6
	p, err := fft.New[float32, complex64](x, fft.Shape{N: []int{height, width}, Batch: batch, InPlace: true}, fft.Options{Scale: true})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	spectra, err := safe.NewBuffer[complex64](x, batch*height*(width/2+1))
	if err != nil {
		log.Fatal(err)
	}
	defer spectra.Close()
	images, err := safe.Cast[float32](spectra) // rows of 2*(width/2+1) numbers
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(images.Fill(1), smooth(p, s, images, spectra, func() error { return nil })); err != nil {
		log.Fatal(err)
	}
	v, err := images.Download()
	fmt.Printf("%.1f %v\n", v[:width], err)
	// Output: [1.0 1.0 1.0 1.0 1.0 1.0] <nil>
}
