// Package library helps to bind CUDA libraries on top of package safe. Packages blas, fft and random use it, and so can
// yours for another library.
//
//	o, err := library.New(x, library.Options{Name: "cuSPARSE handle", Create: create, Destroy: destroy})
//	err = o.Enqueue(s, size, func(p library.Place) error { ... }, a.Arg(), b.Arg())
//
// An [Object] stands for what a library creates in a context: a handle, a plan, a generator. Package library creates
// and destroys it while no stream of the context captures, because libraries may wait for the whole context then. Work
// that uses the object retains it, and so does a graph that has captured such work. So you may close the object at any
// time.
//
// [Object.Enqueue] calls your function with the object locked, with a workspace, and while the stream's captures
// neither begin nor end. Any number of goroutines may call it.
package library
