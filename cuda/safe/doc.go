// Package safe is CUDA for Go programs. Devices, contexts, streams, events, memory,
// modules and graphs are objects that any goroutine may use, and misuse returns an error
// instead of crashing the process. The package calls the driver API through package
// driver. It needs NVIDIA's driver for CUDA 11.8 or newer, and no CUDA toolkit.
//
//	x, err := safe.Open(0)
//	...
//	s, err := safe.NewStream(x)
//	m, err := safe.LoadFile(x, "kernels.ptx")
//	k, err := m.Kernel("saxpy")
//	in, err := safe.Upload(x, values)
//	out, err := safe.NewZeroed[float32](x, n)
//	err = k.Launch(s, safe.Threads(n), safe.Val(uint32(n)), safe.Val(float32(2)), in.Arg(), out.Arg())
//	sums, err := out.Download()
//
// # Streams and memory
//
// A [Context] holds every other object of a device. A [Module] holds kernels that nvcc, package
// compile or another compiler has compiled to PTX or to a cubin. Launch a [Kernel] on a [Stream],
// with arguments from [Val], [Buffer.Arg] and [Pinned.Arg]. Work on one stream runs in order. Work
// on different streams may run concurrently unless [Stream.WaitStream], [Stream.Fork] or an
// [Event] orders it.
//
// A [Buffer] is device memory. A [Pinned] is page-locked host memory that devices can
// access. Methods with Async in their name enqueue work on a stream and return; their
// host side is a [Pinned]. The other methods take Go slices, wait for all work that uses
// the buffer, and return when the copy has completed: [Buffer.CopyToHost] needs no
// synchronization before it.
//
// [ReserveAddress] is for memory that grows in place, [NewLinker] for linking several
// pieces of code.
//
// [Stream.Wait] and [Event.Wait] take a [context.Context] and block the goroutine, mostly
// without blocking a thread. If the wait is canceled, the work goes on, and the memory it uses
// stays allocated. [Enqueue] and [Stream.Completion] return a [Future]. [Stream.Scope] lends Go
// memory to a stream. [Stream.AddCallback] and [Stream.LaunchHostFunc] call a Go function once
// earlier work has completed. [Stream.Capture] records work that runs repeatedly as a [Graph].
// Kernels on streams of a [GreenContext] run on some of the device's multiprocessors only. The
// guide starts in docs/README.md of this module; complete programs are in examples/samples.
//
// Programs can be tested without a GPU on the simulated driver, a test double:
//
//	go run github.com/cudabind/cudabind/tools/simdriver -o sim
//	LD_LIBRARY_PATH=$PWD/sim go test ./...
//
// # Goroutines and contexts
//
// CUDA's current context belongs to a thread, and goroutines move between threads. No
// function of this package depends on the current context, and each leaves the thread's
// current context as it was, even if there was none. [Context.WithCurrent] makes a
// context current for libraries that need it.
//
// # Lifetime
//
// Every stream, event, buffer, module, context and graph has a Close method. You may close
// objects in any order, more than once, and while other goroutines use them: the object is then
// destroyed after their calls have returned. A context that is closed first is destroyed after
// the last object in it; [Context.CloseAll] closes all that are open. The garbage collector also
// closes objects that were dropped without Close. Do not rely on it: it does not know how full
// the device is. See [OnError] and [TrackLeaks].
//
// The slices that [Pinned.Data] and [Buffer.Data] return are CUDA's memory, which the garbage
// collector does not track. Do not access them after Close, or after the object was dropped: the
// memory may have another use by then. A Go slice that you register by [RegisterPinned] stays valid.
//
// A nil pointer and the zero value of any of these types behave like a closed object.
//
// # Errors
//
// This package's own errors are of type [*Error], which names the operation. Functions that call
// a function of yours may return its error unchanged. Compare CUDA's codes with errors.Is(err,
// driver.CUDA_ERROR_OUT_OF_MEMORY), and the errors of this package, such as [ErrClosed],
// likewise. If work fails on the device, a later call returns the error, with Async set. If
// [IsFatal] returns true for it, CUDA stays unusable until the process is restarted.
//
// # Captures
//
// In CUDA, a call on one thread can invalidate a capture on another, even if they have
// nothing else in common. No call of this package does that. A call that would invalidate
// the capture of its own stream returns [ErrCapturing] instead.
package safe
