package safe

import (
	"math"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Dim is an extent in up to three dimensions. Y and Z count as 1 where they are
// 0; X must be set.
type Dim struct{ X, Y, Z uint32 }

// Blocks is how many blocks of so many threads it takes for n values. It is 0,
// which no launch takes, for numbers below 1, and as many as the type holds, which
// is more than any device has, where it would be more.
func Blocks(n, threads int) Dim {
	if n < 1 || threads < 1 {
		return Dim{}
	}
	return Dim{X: uint32(min((n-1)/threads+1, math.MaxUint32))}
}

func (d Dim) full() [3]uint32 { return [3]uint32{d.X, max(d.Y, 1), max(d.Z, 1)} }

// Launch puts the kernel on a stream. Arguments are compared with the kernel's
// parameters in number and size, where the driver tells those (from CUDA 12.4
// on); otherwise wrong ones make the kernel misbehave. Buffers are kept until
// the kernel is done, also if they are closed or dropped meanwhile; so are those
// in cfg.Uses, which the kernel reaches by addresses inside other arguments. It
// allocates nothing.
//
// Launch returns before the kernel runs: what goes wrong in it is reported by
// the stream's waits. Where the driver refuses the launch, the error's Detail
// says which limit it crosses, if one can be named. When too many launches
// are pending on the stream, some 1,000, the call blocks.
//
// Source: cuLaunchKernel, cuLaunchKernelEx where there are attributes.
func (k *Kernel) Launch(s *Stream, cfg LaunchConfig, args ...Arg) error {
	const op = "Kernel.Launch"
	m, err := k.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	if !m.ctx.same(sc.ctx) {
		return refuse(op, ErrContextMismatch, "the kernel is of %v, the stream of %v", m.ctx.device, sc.ctx.device)
	}
	if bad := k.check(args); bad >= 0 {
		return k.badArgument(op, args, bad)
	}
	l := rt.Launch{Context: sc.callContext, Function: k.function, Args: uint32(len(args)), Config: cfg.raw()}
	l.Config.HStream = sc.raw
	var code driver.CUresult
	var bad int
	if cfg.attributed() {
		var room [8]driver.CUlaunchAttribute
		list := cfg.attributes(room[:0])
		l.Config.Attrs, l.Config.NumAttrs = &list[0], uint32(len(list))
		code, bad = sc.launch(op, &l, m, args, cfg.Uses)
	} else {
		code, bad = sc.launch(op, &l, m, args, cfg.Uses)
	}
	if bad >= 0 {
		return k.badUse(op, args, cfg.Uses, bad)
	} else if code != 0 {
		return k.refused(failed(op, code), &cfg)
	}
	return nil
}

// launch notes which blocks the kernel uses, and enqueues it. bad is the index of an
// argument whose block is closed or out of reach, or beyond them of one that is only used;
// -1 for none.
func (s *streamCore) launch(op string, l *rt.Launch, m *moduleCore, args, uses []Arg) (code driver.CUresult, bad int) {
	capture, err := s.enterWork(op, 1)
	if err != nil {
		return codeOf(err), -1
	}
	defer s.leaveWork(capture)
	capture.retainsAcquired(&m.Handle)
	for i := range args {
		if args[i].raw.Kind() == rt.NearOfBlock && !s.reaches(&args[i], capture) {
			return 0, i
		}
	}
	for i := range uses {
		if uses[i].raw.Kind() != rt.NearOfBlock || !s.reaches(&uses[i], capture) {
			return 0, len(args) + i
		}
	}
	enqueuing.enter()
	defer enqueuing.leave()
	if len(args) == 0 {
		return l.Do(nil), -1
	}
	return l.Do(&args[0].raw), -1
}

// reaches notes that work on the stream uses the memory of an argument, if it may. mu is held.
func (s *streamCore) reaches(a *Arg, capture *capturing) bool {
	b := a.block()
	return b.use(s) && capture.retains(&b.Handle) && s.ctx.mayUse(b)
}

// mostArgs is how many parameters no kernel has: CUDA gives them less than 32 KiB.
const mostArgs = 32 << 10

// check returns the index of an argument that cannot be right, -1 for none; if
// there are too few it is that of the first that is missing.
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

// badArgument says what is wrong with argument i.
func (k *Kernel) badArgument(op string, args []Arg, i int) error {
	if i >= len(args) {
		return refuse(op, ErrInvalidArgument, "%s has %d parameters, not %d", k.name, len(k.sizes), len(args))
	}
	if len(args) > mostArgs {
		return refuse(op, ErrInvalidArgument, "%s has no %d parameters", k.name, len(args))
	}
	a := &args[i].raw
	switch {
	case a.Kind() == argPointers:
		return refuse(op, ErrInvalidArgument, "argument %d of %s: type %s holds Go pointers, or is a nil Ref", i, k.name, *(*string)(a.Pointer))
	case a.Kind() == argClosed:
		return refuse(op, ErrClosed, "argument %d of %s is memory or a texture that is nil, or that kernels cannot reach", i, k.name)
	case k.known && i >= len(k.sizes):
		return refuse(op, ErrInvalidArgument, "%s has %d parameters, not %d", k.name, len(k.sizes), len(args))
	case k.known && a.Size() != k.sizes[i]:
		return refuse(op, ErrInvalidArgument, "argument %d of %s has %d bytes, the parameter %d", i, k.name, a.Size(), k.sizes[i])
	}
	return k.badBlock(op, "argument", i, args[i].block())
}

// badUse is badArgument for an index that goes on in uses.
func (k *Kernel) badUse(op string, args, uses []Arg, i int) error {
	if i < len(args) {
		return k.badArgument(op, args, i)
	}
	i -= len(args)
	switch uses[i].raw.Kind() {
	case rt.NearOfBlock:
		return k.badBlock(op, "use", i, uses[i].block())
	case argClosed:
		return refuse(op, ErrClosed, "use %d of %s is memory or a texture that is nil, or that kernels cannot reach", i, k.name)
	}
	return refuse(op, ErrInvalidArgument, "use %d of %s is no memory", i, k.name)
}

// badBlock says what is wrong with a block that is argument or use i.
func (k *Kernel) badBlock(op, as string, i int, b *block) error {
	switch {
	case b.Closed():
		return refuse(op, ErrClosed, "%s %d of %s is a buffer or a texture", as, i, k.name)
	case b.of != nil:
		return refuse(op, ErrContextMismatch, "%s %d of %s is a texture of %v, the kernel is of %v", as, i, k.name, b.ctx.device, k.module.core.ctx.device)
	}
	return refuse(op, ErrContextMismatch, "%s %d of %s is memory of %v, to which the stream's device was not given access", as, i, k.name, b.ctx.device)
}
