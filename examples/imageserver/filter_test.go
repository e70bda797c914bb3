//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"image"
	"image/color"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKernel: a white pixel on black becomes the weights of the kernel, written by hand.
func TestKernel(t *testing.T) {
	f := newFilter(t, 1)
	m := image.NewGray(image.Rect(0, 0, 9, 9))
	m.SetGray(4, 4, color.Gray{255})
	got, err := f.Blur(t.Context(), m)
	require.NoError(t, err)
	var row []uint8
	for x := range 9 {
		row = append(row, got.RGBAAt(x, 4).G)
	}
	assert.Equal(t, []uint8{0, 1, 8, 19, 25, 19, 8, 1, 0}, row)
	assert.Equal(t, color.RGBA{19, 19, 19, 255}, got.RGBAAt(4, 3))
	assert.Equal(t, color.RGBA{6, 6, 6, 255}, got.RGBAAt(2, 3))
}

// TestBlurMany: many goroutines blur different pictures with a few workers.
func TestBlurMany(t *testing.T) {
	f := newFilter(t, 3)
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for n := range 3 {
				m := picture(20+g, 30-g-n, g)
				got, err := f.Blur(t.Context(), m)
				if assert.NoError(t, err) {
					assert.Equal(t, expected(m), got)
				}
			}
		})
	}
	all.Wait()
}

// TestBlurPart: a picture need not begin at (0, 0), and may be as large as the filter takes.
func TestBlurPart(t *testing.T) {
	f := newFilter(t, 1)
	m := picture(60, 50, 1).SubImage(image.Rect(10, 20, 50, 45))
	got, err := f.Blur(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, expected(m), got)

	_, err = f.Blur(t.Context(), picture(100, 100, 2))
	assert.NoError(t, err)
	_, err = f.Blur(t.Context(), picture(100, 101, 2))
	assert.ErrorIs(t, err, safe.ErrRange)
}

// TestBlurCancelled: Blur stops waiting for the GPU, and for a worker, when its context ends. The
// worker's memory is used again only after the GPU has done with it.
func TestBlurCancelled(t *testing.T) {
	needsSimulated(t)
	f := newFilter(t, 1)
	hold(t)
	for _, waitsFor := range []string{"the GPU", "a worker"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := f.Blur(ctx, picture(10, 10, 1))
		cancel()
		assert.ErrorIs(t, err, context.DeadlineExceeded, waitsFor)
	}
	time.AfterFunc(10*time.Millisecond, func() { control.Hold(false) })
	m := picture(10, 10, 2)
	got, err := f.Blur(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, expected(m), got)
}

// TestBlurFails makes each driver call fail once, from opening the device to closing it. Either an
// error says so, or the picture is right.
func TestBlurFails(t *testing.T) {
	needsSimulated(t)
	m := picture(10, 10, 1)
	blur := func() (_ *image.RGBA, err error) {
		f, err := NewFilter(t.Context(), 2, testPixels)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		return f.Blur(t.Context(), m)
	}
	for n := 1; ; n++ {
		control.Fail("", n, uint32(driver.CUDA_ERROR_UNKNOWN))
		got, err := blur()
		failed := control.Failed()
		control.Reset()
		control.Purge() // destroys what could not be released
		if err == nil {
			assert.Equal(t, expected(m), got, failed)
		} else {
			assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN, failed)
		}
		if failed == "" {
			break
		}
	}
}

// TestBench: the benchmark prints a line for one goroutine and one for many.
func TestBench(t *testing.T) {
	f := newFilter(t, 2)
	var out strings.Builder
	require.NoError(t, bench(f, image.Pt(50, 40), 8, time.Millisecond, &out))
	assert.Regexp(t, `^50 x 40 pixels, 2 streams
  1 goroutine  +[\d.]+ images/s
  8 goroutines +[\d.]+ images/s, [\d.]+ times as many
$`, out.String())
	assert.ErrorIs(t, bench(f, image.Pt(101, 100), 2, time.Millisecond, &out), safe.ErrRange)
}
