// Package rt is the C of the safe layer: calls that make a context current,
// do their work and put back what was current before, all in one crossing.
//
// CUDA's current context belongs to the OS thread, and goroutines move between
// threads, so that the context has to be set in the same crossing as it is
// used in. The same holds for the thread's capture mode: what the safe layer
// does runs in the mode RELAXED, because in the default mode a call as harmless
// as a query destroys a capture that another thread has under way.
package rt
