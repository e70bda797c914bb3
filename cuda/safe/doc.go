// Package safe is CUDA for Go programs: devices, contexts, streams, events,
// memory, modules and launches as objects that any goroutine may use, with
// errors instead of crashes. It stands on the driver API, by package driver,
// and needs nothing but NVIDIA's driver, of CUDA 11.8 or newer.
//
//	x, err := safe.Open(0)
//	...
//	s, err := safe.NewStream(x, safe.StreamOptions{})
//	m, err := safe.LoadFile(x, "kernels.ptx", safe.LoadOptions{})
//	k, err := m.Kernel("saxpy")
//	err = k.Launch(s, safe.LaunchConfig{Grid: safe.Blocks(n, 256), Block: safe.Dim{X: 256}},
//		safe.Val(uint32(n)), safe.Val(float32(2)), in.Arg(), out.Arg())
//	err = s.Synchronize()
//
// # Work and memory
//
// A [Context] is the home of everything on a device. A [Module] holds kernels,
// as PTX that nvcc or somebody else has made; a [Kernel] is launched on a
// [Stream], with arguments made by [Val], [Buffer.Arg] and [Pinned.Arg].
// What is on one stream runs in order, and what is on two does so where an
// [Event] says it: see [Stream.Record] and [Stream.WaitEvent].
//
// A [Buffer] is memory of the device, a [Pinned] memory of the host that the
// device reaches. Methods with Async in their name put work on a stream and
// return, and take a [Pinned] for the host's side. The others take Go slices,
// wait for the streams that use the buffer, and return when all is done: no
// program has to synchronize before [Buffer.CopyToHost].
//
// [ReserveAddress] is for memory that grows where it is, [NewLinker] for code in
// several pieces.
//
// [Stream.Wait] and [Event.Wait] take a [context.Context], and block a goroutine
// but no thread. A wait that is given up leaves the work running, and what it
// uses alive. [Enqueue] and [Stream.Completion] make a [Future]; [Stream.Scope] lends
// memory of Go's to a stream; [Stream.AddCallback] and [Stream.LaunchHostFunc] call
// Go when work is done; [Stream.Capture] makes a [Graph] of work that is done
// again and again; kernels on streams of a [GreenContext] keep to a part of the
// device. A tour, a page a topic, begins in docs/README.md of this module, and
// programs are in examples/samples.
//
// Programs are tested without a GPU on the simulated driver, a test double:
//
//	go run github.com/cudabind/cudabind/tools/simdriver -o sim
//	LD_LIBRARY_PATH=$PWD/sim go test ./...
//
// # Goroutines and contexts
//
// CUDA's current context belongs to a thread, and goroutines move between
// threads. No function here leans on the current context or changes it; what a
// thread had before a call it has afterwards, also none. [Context.WithCurrent] is for
// other libraries, which want a context to be current.
//
// # Lifetime
//
// What is made is closed: streams, events, buffers, modules, contexts. Close may
// come in any order, twice, and while other goroutines use the object: then it
// is destroyed when their calls are over. A context that is closed goes with
// the last object in it. What is dropped without Close is destroyed when the
// garbage collector finds it; that is a net, not a plan, since the collector
// does not know how full the device is. See [OnError] and [TrackLeaks].
//
// A nil pointer or a zero value of any type behaves like a closed object.
//
// # Errors
//
// Every error is an [*Error] that names the operation. CUDA's codes are
// compared with by errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY); what this
// package itself refuses has names such as [ErrClosed]. Errors of work on the
// device are reported by whatever call comes later, and have Async set; after
// one for which [IsFatal] holds only a new process helps.
//
// # Captures
//
// CUDA destroys a capture of one thread when another thread makes calls that
// have nothing to do with it. What this package calls is arranged so that it
// does not; where a call cannot be made without destroying the capture of its
// own stream, it is refused with [ErrCapturing].
package safe
