package main

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/draw"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

//go:generate go run ../../tools/kernels -doubles blur.cu

// Filter blurs pictures on one GPU. Any number of goroutines may use it: each takes a worker for
// the time that its picture is on the GPU, or waits until one is idle.
type Filter struct {
	context *safe.Context
	kernels *Blur
	workers int
	idle    chan *worker
}

// worker is a stream with the memory for one picture.
type worker struct {
	stream *safe.Stream
	pixels *safe.Pinned[byte] // the picture, and then the result
	a, b   *safe.Buffer[byte]
}

// NewFilter compiles the kernel, and makes workers for pictures of up to maxPixels.
func NewFilter(ctx context.Context, workers, maxPixels int) (*Filter, error) {
	f := &Filter{idle: make(chan *worker, workers)}
	if err := f.open(ctx, workers, maxPixels); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Filter) open(ctx context.Context, workers, maxPixels int) (err error) {
	if f.context, err = safe.Open(0); err != nil {
		return err
	}
	if f.kernels, err = LoadBlur(ctx, f.context, compile.Options{}); err != nil {
		return err
	}
	for range workers {
		w, err := newWorker(f.context, 4*maxPixels)
		if err != nil {
			return err
		}
		f.workers++
		f.idle <- w
	}
	return nil
}

func newWorker(x *safe.Context, bytes int) (*worker, error) {
	stream, err1 := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	pixels, err2 := safe.NewPinned[byte](x, bytes)
	a, err3 := safe.NewBuffer[byte](x, bytes)
	b, err4 := safe.NewBuffer[byte](x, bytes)
	w := &worker{stream, pixels, a, b}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *worker) close() error {
	return errors.Join(w.stream.Close(), w.pixels.Close(), w.a.Close(), w.b.Close())
}

// Close waits for all workers and releases everything. Blur must not be called afterwards.
func (f *Filter) Close() error {
	var errs []error
	for range f.workers {
		w := <-f.idle
		errs = append(errs, w.close())
	}
	f.workers = 0
	return errors.Join(append(errs, f.kernels.Close(), f.context.Close())...)
}

// Blur returns a blurred copy of a picture. If ctx ends first, it returns the cause at once.
func (f *Filter) Blur(ctx context.Context, picture image.Image) (*image.RGBA, error) {
	var w *worker
	select {
	case w = <-f.idle:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	blurred, err := w.blur(ctx, f.kernels, picture)
	if err != nil {
		// The GPU may still use the worker's memory.
		go func() {
			w.stream.Synchronize() // its error is that of the next picture, too
			f.idle <- w
		}()
		return nil, err
	}
	f.idle <- w
	return blurred, nil
}

// blur copies a picture to the GPU, blurs rows and columns, and copies it back.
func (w *worker) blur(ctx context.Context, k *Blur, picture image.Image) (*image.RGBA, error) {
	size := picture.Bounds().Size()
	n := 4 * size.X * size.Y
	pixels, err1 := w.pixels.Slice(0, n)
	a, err2 := w.a.Slice(0, n)
	b, err3 := w.b.Slice(0, n)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err // too large
	}
	rgba := &image.RGBA{Pix: pixels.Data(), Stride: 4 * size.X, Rect: image.Rectangle{Max: size}}
	draw.Draw(rgba, rgba.Rect, picture, picture.Bounds().Min, draw.Src)

	threads := safe.Threads2D(size.X, size.Y)
	width, height := int32(size.X), int32(size.Y)
	if err := a.CopyFromHostAsync(w.stream, pixels); err != nil {
		return nil, err
	}
	if err := k.Blur.Launch(w.stream, threads, a, b, width, height, 1, 0); err != nil {
		return nil, err
	}
	if err := k.Blur.Launch(w.stream, threads, b, a, width, height, 0, 1); err != nil {
		return nil, err
	}
	if err := a.CopyToHostAsync(w.stream, pixels); err != nil {
		return nil, err
	}
	if err := w.stream.Wait(ctx); err != nil {
		return nil, err
	}
	return &image.RGBA{Pix: bytes.Clone(rgba.Pix), Stride: rgba.Stride, Rect: rgba.Rect}, nil
}
