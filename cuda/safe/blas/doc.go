// Package blas multiplies matrices by cuBLAS and cuBLASLt, on the streams of package safe:
//
//	h, err := blas.Open(x, blas.Options{})
//	err = blas.Gemm(h, s, 1, blas.Rows(a, m, k), blas.Rows(b, k, n), 0, blas.Rows(c, m, n))
//
// Matrices are stored by row, as in Go, unless a [Matrix] says otherwise; transposes and parts are views. [Gemm]
// multiplies two matrices, [GemmStrided] and [GemmBatched] many, [Gemv] a matrix and a vector. [Axpy], [Scal], [Dot]
// and [Nrm2] work on vectors. [Matmul] also takes 8-bit numbers, and applies a bias, an activation or its gradient in
// the same kernel.
//
// # Streams and captures
//
// All functions except [Dot] and [Nrm2] enqueue work and return. They retain buffers as a launch does. On a capturing
// stream the work becomes part of the graph, which retains the buffers. Call [Open] before you capture: it needs a
// context without captures.
//
// # Goroutines
//
// Any number of goroutines may use one [Handle], on any streams. A call locks one of the Handle's cuBLAS handles while
// it is inside cuBLAS, where it does not wait for the GPU.
//
// # Workspaces
//
// cuBLAS gets its workspace from the Handle, which has one for each of the streams that called last: see
// Options.Workspaces. In a capture, the work of each stream gets a workspace that belongs to the graph. So graphs may
// run side by side. Two executables of one graph share its workspaces, as they share its matrices: do not run them at
// the same time. The calls on one stream must remain in order in the graph: do not make them independent by
// [safe.Stream.UpdateCaptureDependencies], but use several streams, such as those of [safe.Stream.Fork].
//
// # Libraries
//
// cuBLAS is found as docs/libraries.md says. It must be of CUDA 12 or 13.
package blas
