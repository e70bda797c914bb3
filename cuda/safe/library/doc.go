// Package library is what packages over CUDA's libraries stand on: blas, fft and random beside it,
// and yours for a library that has no package.
//
//	o, err := library.New(x, library.Options{Name: "cuSPARSE handle", Create: create, Destroy: destroy})
//	err = o.Enqueue(s, size, func(p library.Place) error { ... }, a.Arg(), b.Arg())
//
// An [Object] stands for what a library creates in a context: a handle, a plan, a generator.
// Package library creates and destroys it while no stream of the context captures, as
// libraries may wait for the whole context then. Work that the object has enqueued retains it,
// and so does a graph of a capture, so that closing it at any moment is fine.
//
// [Object.Enqueue] calls your function with the object locked and with a workspace,
// when the stream's captures neither begin nor end. Any number of goroutines may call it.
package library
