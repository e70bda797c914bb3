package safe

import (
	"fmt"
	"math"
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Dim is the size of a grid, block or cluster in up to three dimensions. X must be set; 0
// in Y or Z means 1.
type Dim struct{ X, Y, Z uint32 }

// Blocks returns the grid for n values with one thread each: ceil(n/threads) blocks in X.
// If n or threads is below 1 it returns the zero Dim, which a launch refuses. A result
// above the range of uint32 is capped, which is more than any device accepts.
func Blocks(n, threads int) Dim {
	if n < 1 || threads < 1 {
		return Dim{}
	}
	return Dim{X: uint32(min((n-1)/threads+1, math.MaxUint32))}
}

func (d Dim) full() [3]uint32 { return [3]uint32{d.X, max(d.Y, 1), max(d.Z, 1)} }

// Launch enqueues the kernel on s. The launch retains the memory in args and in cfg.Uses
// until the kernel has completed, even if it is closed or dropped in the meantime.
//
// It returns [ErrInvalidArgument] if an argument holds Go pointers, or if the number or a
// size of args differs from the kernel's parameters. Drivers before CUDA 12.4 do not
// report parameters: mismatches then go undetected, and the kernel reads wrong values. It
// returns [ErrClosed] if the module, the stream or an argument's memory is closed, and
// [ErrContextMismatch] if the stream belongs to another context or its device has no
// access to an argument's memory. If the driver refuses the launch, the error's Detail
// names the limit exceeded, if it can be determined.
//
// Launch returns before the kernel runs: waits for the stream report faults of the kernel.
// It blocks while about 1,000 operations are pending on the stream. It allocates no Go
// memory.
//
// Source: cuLaunchKernel, or cuLaunchKernelEx if cfg sets launch attributes.
func (k *Kernel) Launch(s *Stream, cfg LaunchConfig, args ...Arg) error {
	for tries := 0; ; tries++ {
		err := k.launch(s, &cfg, args)
		if err == nil || !makeRoom(err, tries) { // for the kernel's code and its local memory
			return err
		}
	}
}

func (k *Kernel) launch(s *Stream, cfg *LaunchConfig, args []Arg) error {
	const op = "Kernel.Launch"
	m, err := k.openUnacquired(op)
	if err != nil {
		return err
	}
	sc, err := s.openUnacquired(op)
	if err != nil {
		return err
	}
	if !m.ctx.same(sc.ctx) {
		return refuse(op, ErrContextMismatch, "%s belongs to a context of %v, the stream to one of %v", k.name, m.ctx.device, sc.ctx.device)
	}
	if bad := k.check(args); bad >= 0 {
		return k.badArgument(op, args, bad)
	}
	l := rt.Launch{Context: sc.callContext, Function: k.function, Args: uint32(len(args)), Config: cfg.raw()}
	l.Config.HStream = sc.raw
	attributed := cfg.attributed()
	if !attributed && k.prepared.Load() {
		l.Prepared = 1
	}
	a := admission{op: op, stream: sc, flags: enqueues | unacquired, places: 1, while: &m.Handle}
	err = a.admit()
	runtime.KeepAlive(k) // as neither is acquired
	runtime.KeepAlive(s)
	if err != nil {
		return err
	}
	// The module is not acquired: Destroy waits until the locks of all streams were free.
	if m.Over() || !a.capture.retains(&m.Handle) {
		a.leave(false)
		return &Error{Op: op, Err: ErrClosed}
	}
	var code driver.CUresult
	var bad int
	if attributed {
		var room [8]driver.CUlaunchAttribute
		list := cfg.attributes(room[:0])
		l.Config.Attrs, l.Config.NumAttrs = &list[0], uint32(len(list))
		code, bad = sc.launch(&l, a.capture, args, cfg.Uses)
	} else {
		code, bad = sc.launch(&l, a.capture, args, cfg.Uses)
	}
	a.leave(bad < 0 && code == 0) // not deferred, which takes longer
	if bad >= 0 {
		return k.badUse(op, args, cfg.Uses, bad)
	} else if code != 0 {
		return k.refused(failed(op, code), cfg)
	}
	return nil
}

// launch records the stream as a user of the kernel's memory, and enqueues the kernel. bad is
// the index in args, continued in uses, of memory that is closed or that the stream's device
// cannot access; -1 for none. The call is admitted.
func (s *streamCore) launch(l *rt.Launch, capture *capturing, args, uses []Arg) (code driver.CUresult, bad int) {
	for i := range args {
		if args[i].raw.Kind() == rt.NearOfBlock && !s.reaches(&args[i], capture) {
			return 0, i
		}
	}
	if i := s.reachesAll(uses, capture); i >= 0 {
		return 0, len(args) + i
	}
	if len(args) == 0 {
		return l.Do(nil), -1
	}
	return l.Do(&args[0].raw), -1
}

// reaches records the stream as a user of an argument's memory. It fails if that is closed or
// the stream's device cannot access it. mu is held.
func (s *streamCore) reaches(a *Arg, capture *capturing) bool {
	b := a.block()
	return b.use(s) && capture.retains(&b.Handle) && s.ctx.mayUse(b)
}

// reachesAll notes the stream as a user of the memory in uses, and has the capture retain it. It returns the index of
// the first that is not memory, is closed, or that the stream's device cannot access; -1 for none.
func (s *streamCore) reachesAll(uses []Arg, capture *capturing) int {
	for i := range uses {
		if uses[i].raw.Kind() != rt.NearOfBlock || !s.reaches(&uses[i], capture) {
			return i
		}
	}
	return -1
}

// mostArgs is more parameters than a kernel can have: CUDA limits them to less than 32 KiB.
const mostArgs = 32 << 10

// check returns the index of the first argument that is wrong, or missing; -1 for none.
func (k *Kernel) check(args []Arg) int {
	for i := range args {
		a := &args[i].raw
		if i == mostArgs || a.Kind() >= rt.FirstOther || k.known && (i >= len(k.sizes) || a.Size() != k.sizes[i]) {
			return i
		}
	}
	if k.known && len(args) < len(k.sizes) {
		return len(args)
	}
	return -1
}

// badArgument explains why argument i is wrong.
func (k *Kernel) badArgument(op string, args []Arg, i int) error {
	if len(args) > mostArgs {
		return refuse(op, ErrInvalidArgument, "%d arguments for %s, more than any kernel can have", len(args), k.name)
	}
	if i >= len(args) || k.known && i >= len(k.sizes) {
		return refuse(op, ErrInvalidArgument, "%d arguments for %s, which has %d parameters", len(args), k.name, len(k.sizes))
	}
	a := &args[i].raw
	switch {
	case a.Kind() == argUnfit:
		return refuse(op, ErrInvalidArgument, "argument %d of %s: %s", i, k.name, *(*string)(a.Pointer))
	case a.Kind() == argClosed:
		return refuse(op, ErrClosed, "argument %d of %s: its memory or texture is nil, or has no device address", i, k.name)
	case k.known && a.Size() != k.sizes[i]:
		return refuse(op, ErrInvalidArgument, "argument %d of %s has %d bytes, but the parameter has %d", i, k.name, a.Size(), k.sizes[i])
	}
	return k.badBlock(op, "argument", i, args[i].block())
}

// badUse returns the error for argument i of the kernel or, from len(args) on, for a value of LaunchConfig.Uses.
func (k *Kernel) badUse(op string, args, uses []Arg, i int) error {
	if i < len(args) {
		return k.badArgument(op, args, i)
	}
	i -= len(args)
	return badUse(op, fmt.Sprintf("LaunchConfig.Uses %d of %s", i, k.name), k.module.core.ctx.device, &uses[i])
}

// badBlock explains why the memory of argument i is wrong.
func (k *Kernel) badBlock(op, as string, i int, b *block) error {
	return badBlock(op, fmt.Sprintf("%s %d of %s", as, i, k.name), k.module.core.ctx.device, b)
}

// badUse explains why work on a device cannot use what the program has listed.
func badUse(op, what string, on Device, use *Arg) error {
	switch use.raw.Kind() {
	case rt.NearOfBlock:
		return badBlock(op, what, on, use.block())
	case argClosed:
		return refuse(op, ErrClosed, "%s: its memory or texture is nil, or has no device address", what)
	}
	return refuse(op, ErrInvalidArgument, "%s is a value; list memory, textures and surfaces there", what)
}

// badBlock explains why work on a device cannot use a block.
func badBlock(op, what string, on Device, b *block) error {
	switch {
	case b.Closed():
		return refuse(op, ErrClosed, "%s: its memory or texture", what)
	case b.ctx.device == on && (b.graph != nil || !b.allocated()): // or the capture has freed it
		return refuse(op, ErrNotAllocated, "%s", what)
	case b.of != nil:
		return refuse(op, ErrContextMismatch, "%s is a texture of %v, the stream belongs to %v", what, b.ctx.device, on)
	}
	return refuse(op, ErrContextMismatch, "%s is memory of %v; the stream's device has no access to it", what, b.ctx.device)
}
