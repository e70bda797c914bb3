// Package compile compiles CUDA C++ while the program runs, with NVIDIA's compiler NVRTC, and loads the result for
// package safe:
//
//	m, err := compile.Load(ctx, x, source, compile.Options{})
//	k, err := m.Kernel("add")
//
// [Load] compiles machine code for exactly the GPU of the context. [Compile] and [Link] need no GPU and no driver: they
// return an [Image], which a program can store or load later.
//
// # Libraries
//
// NVRTC is found as docs/libraries.md says. Where there is none, functions return an error that matches
// [errors.ErrUnsupported] and lists the places. They also return such an error for what the NVRTC at hand cannot do.
// [Link], and Options.LTO, need nvJitLink too. CUDA's headers, such as cuda_fp16.h, cooperative_groups.h and those of
// CUB, are found next to NVRTC; NVRTC 13.3 and newer contain them. NVRTC has no C headers. For sources that find no
// others, this package has what kernels use of stdint.h, stddef.h, limits.h, float.h, math.h, stdio.h, stdlib.h,
// string.h, assert.h and stdbool.h, and their C++ names, such as cstdint. Its limits.h lacks LONG_MIN, LONG_MAX and
// ULONG_MAX, because long has another size on Windows. It also has cudabind/conditions.h, which declares
// cudaGraphSetConditional. For more of C++, include headers whose names begin with cuda/std, such as cuda/std/array.
//
// # Kernels
//
// Declare kernels extern "C" to find them by their names. Name all others, such as instances of templates, in
// Options.Kernels: Module.Kernel then finds them by the same text.
//
// # Errors
//
// The error of source that does not compile is an [*Error], which wraps a [*Diagnostic] for each message of the
// compiler.
//
// # Cache
//
// Images are kept in the user's cache folder, cudabind/compile. What has been compiled before, even by another process,
// is loaded from there. An image is only used for the same source, headers, options, compiler and architecture. A
// source whose image may depend on anything else is compiled each time: docs/kernels.md lists the cases. A default
// folder that cannot be used, or that another user can write to, is not used. See Options.CacheFolder and
// Options.NoCache.
//
// # Signals
//
// On Linux, NVRTC before CUDA 13.1 ends the program with status 4 if SIGINT or SIGTERM arrives while it reads a source, which
// takes a part of each compilation, even if the program handles these signals with package os/signal. From then on, they
// are handled as before.
//
// # Goroutines
//
// All functions may be called by any goroutine at once. They return as soon as their [context.Context] ends; a compiler
// that cannot be stopped (NVRTC before 12.8, NVRTC's optimizer, and nvJitLink) then finishes in the background, and its
// result is dropped. File systems are read on another goroutine, possibly for a moment after the context has ended. If
// a file system panics, so does the call.
package compile
