// Package fft computes discrete Fourier transforms by cuFFT, on the streams of package safe:
//
//	p, err := fft.New[complex64, complex64](x, fft.Shape{N: []int{ny, nx}}, fft.Options{})
//	err = p.Forward(s, in, out)
//	err = p.Inverse(s, out, in)
//
// A [Plan] is for one [Shape]: one to three dimensions, batches, strides, real or complex numbers, in two buffers or in
// place. A [Cache] creates plans when they are needed, for programs with many shapes: see [Forward] and [Inverse].
//
// # Streams and captures
//
// All transforms enqueue work and return. They retain buffers as a launch does. On a capturing stream the transform
// becomes part of the graph, which retains the buffers and the plan. Create plans before the capture.
//
// # Goroutines
//
// Any number of goroutines may use one Plan at once, on any streams. A call locks the plan while it is inside cuFFT,
// where it does not wait for the GPU.
//
// # Workspaces
//
// Plans have no workspaces of their own: all plans of a context share some, and each call gets one in the order of its
// stream. In a capture, the work of each stream gets a workspace that belongs to the graph. So graphs may run side by
// side. Two executables of one graph share its workspaces, as they share its buffers: do not run them at the same time.
// The calls on one stream must remain in order in the graph.
//
// # Libraries
//
// cuFFT is found as docs/libraries.md says. It must be of CUDA 12 or 13.
package fft
