package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Launch records a launch of k, with the rules and errors of [Kernel.Launch]. It copies the values of the arguments,
// including the value that a [Ref] refers to. Source: cuLaunchKernel, or cuLaunchKernelEx if cfg sets launch
// attributes.
func (b *Batch) Launch(k *Kernel, cfg LaunchConfig, args ...Arg) error {
	return b.launch("Batch.Launch", appended, k, &cfg, args)
}

// SetLaunch replaces operation n, a launch. It returns [ErrRange] if there is no operation
// n, [ErrInvalidArgument] if that is no launch, and the errors of [Batch.Launch].
func (b *Batch) SetLaunch(n int, k *Kernel, cfg LaunchConfig, args ...Arg) error {
	return b.launch("Batch.SetLaunch", max(n, -1), k, &cfg, args)
}

func (b *Batch) launch(op string, n int, k *Kernel, cfg *LaunchConfig, args []Arg) error {
	if b.none() || k == nil || k.core == nil || k.core.Closed() {
		return &Error{Op: op, Err: ErrClosed}
	}
	m := k.core
	if !m.ctx.same(b.ctx) {
		return refuse(op, ErrContextMismatch, "%s belongs to a context of %v, the batch to one of %v", k.name, m.ctx.device, b.ctx.device)
	}
	if err := k.check(op, &cfg.Block, args); err != nil {
		return err
	}
	for i := range args {
		if args[i].raw.Kind() == rt.NearOfBlock && !b.accesses(&args[i]) {
			return k.badArgument(op, args, i)
		}
	}
	for i := range cfg.Uses {
		if cfg.Uses[i].raw.Kind() != rt.NearOfBlock || !b.accesses(&cfg.Uses[i]) {
			return k.badUse(op, nil, cfg.Uses, i)
		}
	}
	l := rt.Launch{Function: k.function, Args: uint32(len(args)), Config: cfg.raw()}
	if cfg.attributed() {
		var room [8]driver.CUlaunchAttribute
		list := cfg.attributes(room[:0])
		l.Config.Attrs, l.Config.NumAttrs = &list[0], uint32(len(list))
		return b.launchAs(op, n, k, &l, args, cfg.Uses)
	}
	return b.launchAs(op, n, k, &l, args, cfg.Uses)
}

// launchAs records a launch whose arguments are checked.
func (b *Batch) launchAs(op string, n int, k *Kernel, l *rt.Launch, args, uses []Arg) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, err := b.start(op, n, batchLaunch)
	if err != nil {
		return err
	}
	o.kernel = k
	if m := k.core; !b.usesAgain(&m.Handle, false) {
		b.use(n, batchObject{handle: &m.Handle, user: k})
	}
	for i := range args {
		b.useArg(n, &o, &args[i])
	}
	for i := range uses {
		b.useArg(n, &o, &uses[i])
	}
	var first *rt.Arg
	if len(args) > 0 {
		first = &args[0].raw
	}
	b.list.words = l.Append(b.list.words, first)
	b.finish(n, o)
	return nil
}

// accesses tells whether kernels of the Batch's context can access the memory of an
// argument, which is open.
func (b *Batch) accesses(a *Arg) bool {
	m := a.block()
	return !m.Closed() && b.ctx.mayUse(m)
}

// useArg adds the memory of an argument to what operation o uses.
func (b *Batch) useArg(n int, o *batchOp, a *Arg) {
	if a.raw.Kind() == rt.NearOfBlock {
		b.useMemory(n, o, (*memory)(a.raw.Pointer), true)
	}
}

func (b *Batch) useMemory(n int, o *batchOp, m *memory, reach bool) {
	reach = reach && !b.ctx.same(m.ctx)
	if !b.usesAgain(&m.Handle, reach) {
		b.use(n, batchObject{handle: &m.Handle, user: m, block: m.block, reach: reach})
	}
	o.alone = o.alone || m.graph != nil
	b.list.current = b.list.current || m.copiedInContext(true)
}

// BatchCopy records a copy of all of src to the start of dst. Each may be device memory or
// pinned memory. It returns [ErrRange] if src is longer than dst, [ErrOverlap] if they
// overlap, and [ErrContextMismatch] if the device memory belongs to another context than
// the Batch; a copy between two devices needs one of them. Source: cuMemcpyHtoDAsync,
// cuMemcpyDtoHAsync, cuMemcpyDtoDAsync, cuMemcpyPeerAsync or cuMemcpyAsync.
func BatchCopy[T any](b *Batch, dst, src Memory[T]) error {
	return b.copy("BatchCopy", appended, spanOf(dst), spanOf(src))
}

// SetBatchCopy replaces operation n, a copy. It returns [ErrRange] if there is no operation
// n, [ErrInvalidArgument] if that is no copy, and the errors of [BatchCopy].
func SetBatchCopy[T any](b *Batch, n int, dst, src Memory[T]) error {
	return b.copy("SetBatchCopy", max(n, -1), spanOf(dst), spanOf(src))
}

func (b *Batch) copy(op string, n int, to, from span) error {
	if b.none() || !to.open() || !from.open() {
		return &Error{Op: op, Err: ErrClosed}
	}
	c, on, err := to.copyFrom(op, &from)
	switch {
	case err != nil:
		return err
	case on == nil:
		on = b.ctx
	case to.host == nil && from.host == nil && from.memory.ctx.same(b.ctx):
		on = b.ctx // the source's context will do
	}
	if !on.same(b.ctx) {
		return refuse(op, ErrContextMismatch, "the buffer belongs to a context of %v, the batch to one of %v", on.device, b.ctx.device)
	}
	return b.moves(op, n, batchCopies, &c, nil, to.memory, from.memory)
}

// BatchFill records a fill that sets every value of m to v: see [Buffer.Fill]. It returns [ErrInvalidArgument] if T has
// more than 4,000 bytes that are not all 0, and [ErrContextMismatch] if m is device memory of another context than the
// Batch. Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async or cuLaunchKernel.
func BatchFill[T any](b *Batch, m Memory[T], v T) error {
	s := spanOf(m)
	f, err := filling("BatchFill", v, s.n)
	return b.fill("BatchFill", appended, s, f, err)
}

// SetBatchFill replaces operation n, a fill. It returns [ErrRange] if there is no operation
// n, [ErrInvalidArgument] if that is no fill, and the errors of [BatchFill].
func SetBatchFill[T any](b *Batch, n int, m Memory[T], v T) error {
	s := spanOf(m)
	f, err := filling("SetBatchFill", v, s.n)
	return b.fill("SetBatchFill", max(n, -1), s, f, err)
}

func (b *Batch) fill(op string, n int, m span, f fill, err error) error {
	if b.none() || !m.open() {
		return &Error{Op: op, Err: ErrClosed}
	}
	if err != nil {
		return err
	}
	at, err := m.onDevice(op)
	if err != nil {
		return err
	}
	if x := m.memory.ctx; m.host == nil && !x.same(b.ctx) {
		return refuse(op, ErrContextMismatch, "the buffer belongs to a context of %v, the batch to one of %v", x.device, b.ctx.device)
	}
	host, err := f.from(&b.ctx.Handle, b.ctx, at)
	if err != nil {
		return wrap(op, err)
	}
	return b.moves(op, n, batchFills, &f.memset, host, m.memory)
}

// moves records a copy or a fill, with host as for [rt.Copy.Do] if that is a launch.
func (b *Batch) moves(op string, n int, kind batchKind, c *rt.Copy, host unsafe.Pointer, memory ...*memory) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, err := b.start(op, n, kind)
	if err != nil {
		return err
	}
	for _, m := range memory {
		b.useMemory(n, &o, m, false)
	}
	o.uncapturable = c.Kind == rt.Peer
	b.list.across = b.list.across || o.uncapturable
	if c.Size > 0 {
		b.list.words = c.Append(b.list.words, host)
	} else {
		o.places, b.list.words = 0, rt.AppendNothing(b.list.words)
	}
	b.finish(n, o)
	return nil
}

// Record records a [Stream.Record] of e. It returns [ErrContextMismatch] if e belongs to
// another context than the Batch. Source: cuEventRecord.
func (b *Batch) Record(e *Event) error {
	const op = "Batch.Record"
	if b.none() || e == nil || e.core == nil || e.core.Closed() {
		return &Error{Op: op, Err: ErrClosed}
	}
	if v := e.core; !v.ctx.same(b.ctx) {
		return refuse(op, ErrContextMismatch, "the event belongs to a context of %v, the batch to one of %v", v.ctx.device, b.ctx.device)
	}
	return b.add(op, batchRecord, e.core.places(), batchObject{handle: &e.core.Handle, user: e, event: e.core}, func(l []uint64) []uint64 { return rt.AppendRecord(l, e.core.raw) })
}

// WaitEvent records a [Stream.WaitEvent] for e: each submission waits for the latest record
// of e at that time. e may belong to another context. Source: cuStreamWaitEvent.
func (b *Batch) WaitEvent(e *Event) error {
	const op = "Batch.WaitEvent"
	if b.none() || e == nil || e.core == nil || e.core.Closed() {
		return &Error{Op: op, Err: ErrClosed}
	}
	return b.add(op, batchWait, 0, batchObject{handle: &e.core.Handle, user: e, event: e.core}, func(l []uint64) []uint64 { return rt.AppendWait(l, e.core.raw) })
}

// LaunchGraph records a [GraphExec.Launch] of e. Source: cuGraphLaunch.
func (b *Batch) LaunchGraph(e *GraphExec) error {
	const op = "Batch.LaunchGraph"
	if b.none() || e == nil || e.core == nil || e.core.Closed() {
		return &Error{Op: op, Err: ErrClosed}
	}
	return b.add(op, batchGraph, e.core.places, batchObject{handle: &e.core.Handle, user: e, exec: e.core}, func(l []uint64) []uint64 { return rt.AppendGraph(l, e.core.raw) })
}

// LaunchHostFunc records a call of f, which runs once for each submission: see
// [Stream.LaunchHostFunc] for the rules of f. [OnError] receives panics of f. If CUDA is
// lost or other code resets the context, f does not run. Source: cuLaunchHostFunc.
func (b *Batch) LaunchHostFunc(f func()) error {
	const op = "Batch.LaunchHostFunc"
	if b.none() {
		return &Error{Op: op, Err: ErrClosed}
	}
	if f == nil {
		return noFunction(op)
	}
	h, err := newHostCall(f)
	if err != nil {
		return wrap(op, err)
	}
	return b.add(op, batchHost, 0, batchObject{handle: &h.core.Handle, user: h, host: h.core}, func(l []uint64) []uint64 { return rt.AppendHost(l, h.core.token) })
}

// add appends an operation that uses one object.
func (b *Batch) add(op string, kind batchKind, places int, object batchObject, appendCall func([]uint64) []uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, err := b.start(op, appended, kind)
	if err != nil {
		return err
	}
	o.places = int32(places)
	b.list.current = b.list.current || kind == batchGraph // see execCore.admitted
	b.use(appended, object)
	b.list.words = appendCall(b.list.words)
	b.finish(appended, o)
	return nil
}
