// Package random fills buffers with random numbers by cuRAND, on the streams of package safe:
//
//	g, err := random.New(x, random.Philox, random.Options{Seed: 42})
//	err = random.Normal(g, s, buf, 0, 1)
//
// [Uniform], [Normal], [LogNormal], [Poisson] and [Bits] take buffers of any length, at any address: where cuRAND
// cannot fill a buffer, it fills memory of the same stream, which is then copied. They enqueue work and return, except
// Poisson, which waits. They retain buffers as a launch does.
//
// # Order
//
// The calls of a [Generator] take its numbers in the order of the calls, on one stream or on several: the work of a
// call waits for that of the call before. So equal programs get equal numbers. If goroutines make calls in no fixed
// order, give each a generator with a seed of its own.
//
// # Captures
//
// On a capturing stream the work becomes part of the graph, which retains the buffers and the generator. The generator
// then belongs to that graph: calls outside the capture return [safe.ErrInUse]. Executables of one graph share the
// generator's state: do not run them at the same time.
//
// The first launch gets the numbers that calls would have got, but with [Philox] each call after the first begins at
// the next multiple of four numbers. Later launches of a pseudo-random kind get new numbers, which differ from those of
// further calls. Those of a quasi-random kind get the same numbers again. To have the same numbers of a pseudo-random
// kind in each launch, fill a buffer before the capture. [Poisson] returns [safe.ErrCapturing]. A generator of kind
// [MTGP32] returns [safe.ErrNotSupported], because its launches would repeat numbers.
//
// If a generator was used before a capture, its first captured call waits for that work.
//
// # Libraries
//
// cuRAND is found as docs/libraries.md says. It must be of CUDA 12 or 13.
package random
