package main

import (
	"context"
	"fmt"
	"image"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// bench writes how many pictures of a size one goroutine blurs in a second, and how many all of
// the goroutines do. It leaves out HTTP and image formats, which are work for the CPU.
func bench(f *Filter, size image.Point, goroutines int, d time.Duration, w io.Writer) error {
	picture := image.NewRGBA(image.Rectangle{Max: size})
	for i := range picture.Pix {
		picture.Pix[i] = uint8(rand.Uint32())
	}
	if _, err := throughput(f, picture, goroutines, d/10); err != nil { // warms up
		return err
	}
	one, err := throughput(f, picture, 1, d)
	if err != nil {
		return err
	}
	many, err := throughput(f, picture, goroutines, d)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d x %d pixels, %d streams\n", size.X, size.Y, f.workers)
	fmt.Fprintf(w, "%3d goroutine   %8.1f images/s\n", 1, one)
	_, err = fmt.Fprintf(w, "%3d goroutines  %8.1f images/s, %.2f times as many\n", goroutines, many, many/one)
	return err
}

// throughput blurs a picture again and again for a time, and returns how often in a second.
func throughput(f *Filter, picture image.Image, goroutines int, d time.Duration) (float64, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var n atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range goroutines {
		all.Go(func() {
			for first := true; ctx.Err() == nil && (first || time.Since(start) < d); first = false {
				if _, err := f.Blur(ctx, picture); err != nil {
					cancel(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(start).Seconds(), context.Cause(ctx)
}
