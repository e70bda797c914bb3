// Package collective exchanges data between GPUs by NVIDIA's library NCCL: sums over all of them, copies and messages.
// The GPUs may belong to one process, to several, or to several machines: docs/scale.md says what to start and what to
// set.
//
//	comms, err := collective.Open(ctx, contexts...) // all GPUs of this process
//
//	o, err := collective.FromEnv()                  // one GPU for each process
//	c, err := collective.Join(ctx, x, o)
//
//	err = collective.AllReduce(c, stream, sum, values, collective.Sum)
//	err = c.Wait(ctx, stream)
//
// # Operations
//
// Operations are functions that take a [Comm], a stream and buffers of package safe. They enqueue work and follow the
// rules of safe.Stream.EnqueueRaw: any goroutine may call them, they retain their buffers, synchronous copies wait for
// them, and on a capturing stream they become part of the graph. All ranks must enqueue the same operations in the same
// order; NCCL does not compare them.
//
// Arguments are checked before NCCL sees the call. An operation returns safe.ErrRange if lengths do not match or a rank
// does not exist, safe.ErrOverlap if buffers overlap where they must not, safe.ErrContextMismatch if the stream or a
// buffer is on another device than the communicator, safe.ErrInvalidArgument for an unknown [Op], safe.ErrNotSupported
// for a reduction of 8-bit floats before compute capability 9.0, safe.ErrClosed if the communicator, the stream or a
// buffer is closed, and safe.ErrInCallback in a host function.
//
// NCCL connects the ranks at their first operations. Such a call waits for the other ranks; [Comm.Abort] ends it. Until
// then, other calls on its stream and on the communicator wait. So run each kind of operation once before you capture
// it. If one goroutine serves several ranks, it must put their operations into one [Group].
//
// # Failures
//
// A communicator is aborted on all ranks if a rank is lost, if NCCL reports an error, if the context of a [Comm.Wait]
// ends, or by [Comm.Abort]. Calls that wait for other ranks then return. All calls return an error that matches
// [ErrAborted], and launches of executables with its operations return safe.ErrClosed. Streams go on, with undefined
// results: wait with [Comm.Wait], which returns the error. One goroutine of the package watches all communicators while
// there are any.
//
// Without an NCCL library, [Open] and [Join] return an error that matches errors.ErrUnsupported and lists where they
// have looked.
//
// # NVLink multicast
//
// The package sets NCCL_NVLS_ENABLE=0 in the environment before it first calls NCCL, unless that variable is set:
// multicast over NVLink needs a setup that not every machine has.
package collective
