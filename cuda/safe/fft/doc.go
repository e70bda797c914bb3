// Package fft computes discrete Fourier transforms by cuFFT, on the streams of package safe:
//
//	p, err := fft.New[complex64, complex64](x, fft.Shape{N: []int{ny, nx}}, fft.Options{})
//	err = p.Forward(s, in, out)
//	err = p.Inverse(s, out, in)
//
// A [Plan] is for one [Shape]: one to three dimensions, batches, strides, real or complex
// numbers, in two buffers or in place. A [Cache] makes plans as they are needed, for programs
// with many shapes: see [Forward] and [Inverse].
//
// # Streams and captures
//
// Transforms are enqueued. Buffers are retained as by a launch. On a capturing stream the
// transform becomes part of the graph, which retains the buffers and the plan. Plans are made
// before the capture.
//
// # Goroutines
//
// Any number of goroutines may use one Plan at once, on any streams. A call locks the plan
// while it is inside cuFFT, which does not wait for the GPU.
//
// # Workspaces
//
// Plans have no workspace of their own. A call gets one in the order of its stream, which all
// plans of a context share. In a capture, the work of each stream gets a workspace that belongs
// to the graph. So graphs may run side by side. Two executables of one graph share it, as they
// share the buffers: do not run them at the same time. The calls on one stream must remain in
// order in the graph.
//
// # Libraries
//
// cuFFT is found as docs/libraries.md says. It must be of CUDA 12 or 13.
package fft
