package safe

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
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
// It returns [ErrInvalidArgument] if an argument holds Go pointers, if a block has more threads than
// the kernel allows, or if the number or a size of args differs from the kernel's parameters. Drivers before CUDA 12.4 do not
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
	if err := k.check(op, &cfg.Block, args); err != nil {
		return err
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
	if b.usual(s, capture) {
		return true
	}
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

// check refuses arguments and blocks that do not fit the kernel.
func (k *Kernel) check(op string, block *Dim, args []Arg) error {
	for i := range args {
		a := &args[i].raw
		if i == mostArgs || a.Kind() >= rt.FirstOther || k.known && (i >= len(k.sizes) || a.Size() != k.sizes[i]) {
			return k.badArgument(op, args, i)
		}
	}
	if k.known && len(args) < len(k.sizes) {
		return k.badArgument(op, args, len(args))
	}
	if volume(*block) > k.threads {
		return k.badBlockSize(op, block)
	}
	return nil
}

func (k *Kernel) badBlockSize(op string, block *Dim) error {
	return refuse(op, ErrInvalidArgument, "%d threads per block, the maximum of %s is %d, by its __launch_bounds__, its registers or the device", volume(*block), k.name, k.threads)
}

// badArgument explains why argument i is wrong.
func (k *Kernel) badArgument(op string, args []Arg, i int) error {
	if len(args) > mostArgs {
		return refuse(op, ErrInvalidArgument, "%d arguments for %s, more than any kernel can have", len(args), k.name)
	}
	if i >= len(args) || k.known && len(args) != len(k.sizes) {
		return refuse(op, ErrInvalidArgument, "%d arguments for %s, which has %d parameters", len(args), k.name, len(k.sizes))
	}
	a := &args[i].raw
	switch {
	case a.Kind() == argUnfit:
		return refuse(op, ErrInvalidArgument, "argument %d of %s: %s", i, k.name, *(*string)(a.Pointer))
	case a.Kind() == argClosed:
		return refuse(op, ErrClosed, "argument %d of %s: its memory or texture is nil, or has no device address", i, k.name)
	case k.known && a.Size() != k.sizes[i]:
		hint := ""
		if a.Kind() == rt.Near && a.Size() == 8 && k.sizes[i] == 4 {
			hint = ": pass int32 or uint32 for C's int, and float32 for float"
		}
		return refuse(op, ErrInvalidArgument, "argument %d of %s has %d bytes, but the parameter has %d%s", i, k.name, a.Size(), k.sizes[i], hint)
	}
	return k.badBlock(op, "argument", i, args[i].block())
}

// badUse returns the error for argument i of the kernel or, from len(args) on, for a value of LaunchConfig.Uses.
func (k *Kernel) badUse(op string, args, uses []Arg, i int) error {
	if i < len(args) {
		return k.badArgument(op, args, i)
	}
	i -= len(args)
	return badUse(op, fmt.Sprintf("LaunchConfig.Uses %d of %s", i, k.name), k.core.ctx.device, &uses[i])
}

// badBlock explains why the memory of argument i is wrong.
func (k *Kernel) badBlock(op, as string, i int, b *block) error {
	return badBlock(op, fmt.Sprintf("%s %d of %s", as, i, k.name), k.core.ctx.device, b)
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
		return refuse(op, ErrClosed, "%s: its %s", what, b.noun())
	case b.ctx.device == on && (b.graph != nil || !b.allocated()): // or the capture has freed it
		return refuse(op, ErrNotAllocated, "%s", what)
	case b.noun() != memoryNoun:
		return refuse(op, ErrContextMismatch, "%s is a %s of %v, the stream belongs to %v", what, b.noun(), b.ctx.device, on)
	}
	return refuse(op, ErrContextMismatch, "%s is memory of %v; the stream's device has no access to it", what, b.ctx.device)
}

// LaunchConfig configures a kernel launch. Set Grid and Block; the zero value of every other
// field is CUDA's default.
type LaunchConfig struct {
	Grid        Dim    // in blocks
	Block       Dim    // in threads
	SharedBytes uint32 // dynamic shared memory of each block, in bytes
	// Cluster is the size of a thread block cluster, in blocks; the zero value launches
	// without clusters. It requires compute capability 9.0.
	Cluster Dim
	// Cooperative makes all blocks resident at once, so that they can synchronize with
	// each other (grid sync). See [Kernel.MaxCooperativeBlocks].
	Cooperative bool
	// Priority of the kernel: smaller numbers are more urgent, see
	// [StreamOptions]. 0 uses the stream's priority.
	Priority int
	// ProgrammaticSerialization lets the kernel start before the previous kernel in the
	// stream has completed, as soon as every block of that kernel has executed
	// griddepcontrol.launch_dependents. It requires compute capability 9.0.
	ProgrammaticSerialization bool
	// MemSyncDomain is the domain of the kernel's memory fences:
	// driver.CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE for kernels that write to other devices.
	// 0 uses the stream's domain. It requires compute capability 9.0.
	MemSyncDomain driver.CUlaunchMemSyncDomain
	// Attributes are further launch attributes, such as an access policy window.
	Attributes []driver.CUlaunchAttribute
	// Uses lists memory, textures and surfaces that the kernel reaches through addresses
	// inside its arguments, such as pointers in a struct: buf.Arg() for each, which
	// [PointerAddress] appends. The launch treats them as it treats arguments: it retains them until the kernel has completed.
	Uses []Arg
}

// Threads returns a configuration with at least one thread for each of n values: as many
// blocks of 256 threads as that takes. The kernel must check its index, as the last block
// may have threads to spare. Launch returns an error if n is below 1, because CUDA launches
// no empty grids: skip the launch then. It also returns an error if n is above the limits
// of the device.
func Threads(n int) LaunchConfig {
	const block = 256
	return LaunchConfig{Grid: Blocks(n, block), Block: Dim{X: block}}
}

// Threads2D returns a configuration with at least one thread for each of width * height
// values, the x index for the width: as many blocks of 32 x 8 threads as that takes. The
// kernel must check both indices. Launch returns an error if width or height is below 1 or
// above the limits of the device: a grid has up to 65535 blocks in Y, for a height of
// 524280.
func Threads2D(width, height int) LaunchConfig {
	block := Dim{X: 32, Y: 8}
	cfg := LaunchConfig{Block: block}
	if width >= 1 && height >= 1 {
		cfg.Grid = Dim{X: Blocks(width, int(block.X)).X, Y: Blocks(height, int(block.Y)).X}
	}
	return cfg
}

// raw returns cfg without stream and attributes.
func (cfg *LaunchConfig) raw() driver.CUlaunchConfig {
	g, b := &cfg.Grid, &cfg.Block // not Dim.full, whose arrays would go through memory
	return driver.CUlaunchConfig{
		GridDimX: g.X, GridDimY: max(g.Y, 1), GridDimZ: max(g.Z, 1),
		BlockDimX: b.X, BlockDimY: max(b.Y, 1), BlockDimZ: max(b.Z, 1),
		SharedMemBytes: cfg.SharedBytes,
	}
}

func (cfg *LaunchConfig) attributed() bool {
	return cfg.Cooperative || cfg.Cluster.X > 0 || cfg.Priority != 0 || cfg.ProgrammaticSerialization ||
		cfg.MemSyncDomain != 0 || len(cfg.Attributes) > 0
}

// attributes appends cfg's launch attributes to list.
func (cfg *LaunchConfig) attributes(list []driver.CUlaunchAttribute) []driver.CUlaunchAttribute {
	add := func(id driver.CUlaunchAttributeID) *driver.CUlaunchAttributeValue {
		list = append(list, driver.CUlaunchAttribute{Id: id})
		return &list[len(list)-1].Value
	}
	if cfg.Cooperative {
		*add(driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE).Cooperative() = 1
	}
	if cfg.Cluster.X > 0 {
		c := cfg.Cluster.full()
		*add(driver.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).ClusterDim() = driver.CUlaunchAttributeValue_clusterDim{X: c[0], Y: c[1], Z: c[2]}
	}
	if cfg.Priority != 0 {
		*add(driver.CU_LAUNCH_ATTRIBUTE_PRIORITY).Priority() = int32(min(max(cfg.Priority, math.MinInt32), math.MaxInt32))
	}
	if cfg.ProgrammaticSerialization {
		*add(driver.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).ProgrammaticStreamSerializationAllowed() = 1
	}
	if cfg.MemSyncDomain != 0 {
		*add(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).MemSyncDomain() = cfg.MemSyncDomain
	}
	return append(list, cfg.Attributes...)
}

// Arg is a kernel argument, made by [Val], [Ref], [Buffer.Arg] and similar methods. Make
// a new one for each launch.
type Arg struct{ raw rt.Arg }

// Kinds of bad arguments. Making an argument cannot fail, so the launch reports them.
const (
	argUnfit  = rt.FirstOther + iota // Pointer is a string that says why
	argClosed                        // its memory is nil, or has no device address
)

// Val passes v to a kernel by value. T is a number, a bool, or a struct without Go pointers,
// of the same size as the kernel's parameter. Go's int has 8 bytes and C's has 4, so convert
// ints: Val(int32(n)). Values of up to 16 bytes cost no allocation; use [Ref] for larger
// ones.
//
// A device address inside v, such as [Buffer.Raw] in a field, is only a number to this
// package: it does not retain the memory, which might be freed before the kernel runs.
// List such memory in [LaunchConfig].Uses, as [PointerAddress] does.
func Val[T any](v T) Arg {
	if !plain(v) {
		return unfit(toDevice(reflect.TypeFor[T]()))
	}
	tag := rt.Tag(rt.Near, unsafe.Sizeof(v))
	switch unsafe.Sizeof(v) { // a load wider than the store just before it would stall
	case 1:
		return Arg{rt.Arg{Tag: tag, A: uint64(*(*uint8)(unsafe.Pointer(&v)))}}
	case 2:
		return Arg{rt.Arg{Tag: tag, A: uint64(*(*uint16)(unsafe.Pointer(&v)))}}
	case 4:
		return Arg{rt.Arg{Tag: tag, A: uint64(*(*uint32)(unsafe.Pointer(&v)))}}
	case 8:
		return Arg{rt.Arg{Tag: tag, A: *(*uint64)(unsafe.Pointer(&v))}}
	}
	if unsafe.Sizeof(v) <= 16 {
		var near [2]uint64
		*(*T)(unsafe.Pointer(&near)) = v
		return Arg{rt.Arg{Tag: tag, A: near[0], B: near[1]}}
	}
	far := new(T)
	*far = v
	return Ref(far)
}

// Ref passes *v to a kernel by value, as [Val] does, with no allocation for any size. The
// launch reads *v; later changes do not affect it.
func Ref[T any](v *T) Arg {
	if t := reflect.TypeFor[T](); faultOf(t).pointer != "" {
		return unfit(toDevice(t))
	} else if v == nil {
		return unfit(fmt.Sprintf("the Ref is of a nil *%v", t))
	}
	const most = math.MaxUint32 // more than any parameter has
	return Arg{rt.Arg{Tag: rt.Tag(rt.Far, min(unsafe.Sizeof(*v), most)), Pointer: unsafe.Pointer(v)}}
}

// unfit returns an argument that launches refuse.
func unfit(why string) Arg {
	return Arg{rt.Arg{Tag: rt.Tag(argUnfit, 0), Pointer: unsafe.Pointer(&why)}}
}

// plain tells whether a value holds no Go pointers; it is fast for numbers.
func plain[T any](v T) bool {
	switch any(v).(type) {
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, uintptr, float32, float64, bool,
		dtype.Float16, dtype.BFloat16, dtype.Float8E4M3, dtype.Float8E5M2:
		return true
	}
	return faultOf(reflect.TypeFor[T]()).pointer == ""
}

// Arg returns the buffer's device address as a kernel argument: 0 if the buffer is empty. The launch retains the
// memory.
func (b *Buffer[T]) Arg() Arg {
	if b == nil || b.memory == nil {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	if b.n == 0 {
		return addressArg(b.memory, 0)
	}
	return addressArg(b.memory, uint64(b.address))
}

// Arg returns the memory's device address as a kernel argument: 0 if the memory is empty. The launch retains the
// memory.
func (h *Pinned[T]) Arg() Arg {
	switch {
	case h == nil || h.memory == nil || h.n > 0 && h.memory.address == 0:
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	case h.n == 0:
		return addressArg(h.memory, 0)
	}
	offset := uintptr(h.data) - uintptr(h.memory.host)
	return addressArg(h.memory, uint64(h.memory.address)+uint64(offset))
}

// addressArg is an address in m. It points to m, so m is not collected before the launch.
func addressArg(m *memory, address uint64) Arg {
	return Arg{rt.Arg{Tag: rt.Tag(rt.NearOfBlock, unsafe.Sizeof(address)), Pointer: unsafe.Pointer(m), A: address}}
}

// block returns the block of an argument of kind NearOfBlock.
func (a *Arg) block() *block { return (*memory)(a.raw.Pointer).block }
