package safe

import (
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A fill sets memory to copies of a value. For a value of 1 byte, or of 2 or 4 with that alignment, it is a memset,
// for any other the launch of a kernel of this package: on an H200, that took as long as a memset, and what can be
// made of memsets and copies alone took 3 to 700 times as long.
type fill struct {
	memset rt.Copy // of n values; from sets Dst
	value  []byte  // nil for a memset
	n      int
}

// mostOfValue is the size of the largest value that a kernel of this package takes.
const mostOfValue = 4000

// filling describes setting n values to v. All zeros are a memset of bytes, whatever the type.
func filling[T any](op string, v T, n int) (fill, error) {
	size := unsafe.Sizeof(v)
	for _, b := range unsafe.Slice((*byte)(unsafe.Pointer(&v)), size) {
		if b != 0 {
			return valued(op, v, n)
		}
	}
	return zeroing(uint64(n) * uint64(size)), nil
}

// valued describes setting n values to v in a way that depends on the type alone.
func valued[T any](op string, v T, n int) (fill, error) {
	f := fill{memset: rt.Copy{Size: uint64(n)}, n: n}
	p, size := unsafe.Pointer(&v), unsafe.Sizeof(v)
	aligned := unsafe.Alignof(v) >= size // else CUDA may refuse a memset, as the address need not be a multiple of the size
	switch {
	case size == 1:
		f.memset.Kind, f.memset.Src = rt.Set8, driver.CUdeviceptr(*(*uint8)(p))
	case size == 2 && aligned:
		f.memset.Kind, f.memset.Src = rt.Set16, driver.CUdeviceptr(*(*uint16)(p))
	case size == 4 && aligned:
		f.memset.Kind, f.memset.Src = rt.Set32, driver.CUdeviceptr(*(*uint32)(p))
	case size <= mostOfValue:
		f.value = append(f.value, unsafe.Slice((*byte)(p), size)...)
	default:
		return f, refuse(op, ErrInvalidArgument, "a value has %d bytes, but the device can fill with values of up to %d: copy it instead", size, mostOfValue)
	}
	return f, nil
}

// zeroing describes setting bytes to 0.
func zeroing(bytes uint64) fill { return fill{memset: rt.Copy{Kind: rt.Set8, Size: bytes}} }

// at returns the fill of rows of memory from an address on, as package rt takes it with host. pitch is the number of
// bytes from row to row, 0 for a single one. c is acquired. Nothing is locked, as the driver may have to load the kernel.
func (f *fill) at(c *contextCore, address driver.CUdeviceptr, pitch, rows uint64) (call rt.Copy, host unsafe.Pointer, err error) {
	call = f.memset
	call.Dst = address
	if pitch != 0 {
		call.Kind += rt.SetRows8 - rt.Set8
		call.Pitch, call.Rows = pitch, rows
	}
	if f.value == nil || f.n == 0 {
		return call, nil, nil
	}
	l, err := f.rows(c, address, pitch, rows)
	if err != nil {
		return call, nil, err
	}
	call.Kind = rt.FillLaunch
	return call, unsafe.Pointer(&l.list()[0]), nil
}

// from makes memset the call that fills from address on, which takes host. The context need not be acquired: keeper
// keeps it, and is acquired while the kernel of a fill is loaded.
func (f *fill) from(keeper *lifetime.Handle, c *contextCore, address driver.CUdeviceptr) (host unsafe.Pointer, err error) {
	if f.memset.Dst = address; f.value == nil {
		return nil, nil
	}
	if !keeper.Acquire() {
		return nil, ErrClosed
	}
	defer keeper.Release()
	f.memset, host, err = f.at(c, address, 0, 1)
	return host, err
}

// fillNow waits for all work that uses the memory, fills it on an internal stream, and returns once it is filled.
func (s *span) fillNow(op string, f fill) error {
	m, err := s.memory.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	at, err := s.onDevice(op)
	if err != nil {
		return err
	}
	c, host, err := f.at(m.ctx, at, 0, 1)
	if err != nil {
		return wrap(op, err)
	}
	return m.ctx.copyNow(op, &c, host, m)
}

// fillAsync enqueues a fill of the memory on a stream, which is that of its context unless the memory is pinned. The
// kernel of a fill is loaded into the stream's context.
func (s *span) fillAsync(op string, on *Stream, f *fill) error {
	m, err := s.memory.openUnacquired(op)
	if err != nil {
		return err
	}
	sc, err := on.openUnacquired(op)
	if err != nil {
		return err
	}
	at, err := s.onDevice(op)
	if err != nil {
		return err
	}
	host, err := f.from(&sc.Handle, sc.ctx, at)
	if err != nil {
		return wrap(op, err)
	}
	of := m.ctx
	if s.host != nil {
		of = nil
	}
	err = on.copy(op, &f.memset, host, of, m)
	runtime.KeepAlive(s.memory) // as it is not acquired
	return err
}

// A fillLaunch is the launch of a kernel that fills rows with a value.
type fillLaunch struct {
	function    driver.CUfunction
	grid, block [3]uint32
	args        [7]rt.Arg
	value       []byte
}

// rows returns the launch for rows of n values, with a pitch in bytes from row to row.
func (f *fill) rows(c *contextCore, address driver.CUdeviceptr, pitch, rows uint64) (l fillLaunch, err error) {
	word, room := f.word(uint64(address)|pitch), uint64(fillRooms[0])
	if len(f.value) > fillRooms[0] {
		room = mostOfValue
	}
	kernels, err := c.fillKernels()
	if err != nil {
		return l, err
	}
	if l.function, err = kernels.function(word, room); err != nil {
		return l, err
	}
	words := uint64(len(f.value)) / word
	all := uint64(f.n) * words // words of a row
	step := l.shape(all, words, rows, kernels.blocks) / words * words
	l.value = make([]byte, room)
	copy(l.value, f.value)
	l.args = [7]rt.Arg{nearArg(uint64(address), 8), nearArg(pitch, 8), nearArg(rows, 8), nearArg(all, 8), nearArg(step, 4), nearArg(words, 4),
		{Pointer: unsafe.Pointer(&l.value[0]), Tag: rt.Tag(rt.Far, uintptr(room))}}
	return l, nil
}

func nearArg(v uint64, size uintptr) rt.Arg { return rt.Arg{Tag: rt.Tag(rt.Near, size), A: v} }

// word returns the largest unit, of 8, 4 or 1 bytes, of which the value and the places are multiples.
func (f *fill) word(places uint64) uint64 {
	for _, unit := range fillWords {
		if (places|uint64(len(f.value)))%unit == 0 {
			return unit
		}
	}
	return 1
}

// shape chooses blocks of 256 threads for rows of so many words, and at most as many blocks as keep the
// device busy, but a thread for each word of the value. It returns the number of threads of a row.
func (l *fillLaunch) shape(all, words, rows, most uint64) (threads uint64) {
	const size = 256
	x := uint64(size)
	for rows > 1 && x > 1 && x/2 >= all {
		x /= 2
	}
	y := size / x
	if rows == 1 {
		y = 1
	}
	columns := max(min((all-1)/x+1, most), (words-1)/x+1)
	l.block = [3]uint32{uint32(x), uint32(y), 1}
	l.grid = [3]uint32{uint32(columns), uint32(min((rows-1)/y+1, max(most/columns, 1), 1<<16-1)), 1}
	return columns * x
}

// list returns the launch as a list for package rt.
func (l *fillLaunch) list() []uint64 {
	launch := rt.Launch{Function: l.function, Args: uint32(len(l.args)), Config: driver.CUlaunchConfig{
		GridDimX: l.grid[0], GridDimY: l.grid[1], GridDimZ: 1, BlockDimX: l.block[0], BlockDimY: l.block[1], BlockDimZ: 1,
	}}
	return launch.Append(nil, &l.args[0])
}

// nodeType is the type of a node that fills.
func (f *fill) nodeType() driver.CUgraphNodeType {
	if f.value != nil {
		return driver.CU_GRAPH_NODE_TYPE_KERNEL
	}
	return driver.CU_GRAPH_NODE_TYPE_MEMSET
}

// node makes the calls for a node that fills memory at an address. c is acquired.
func (f *fill) node(c *contextCore, address driver.CUdeviceptr) (nodeCalls, error) {
	if f.value != nil {
		return f.kernelNode(c, address)
	}
	p := driver.CUDA_MEMSET_NODE_PARAMS{Dst: address, Value: uint32(f.memset.Src), ElementSize: 1 << (f.memset.Kind - rt.Set8), Width: f.memset.Size, Height: 1}
	return nodeCalls{
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			return driver.CuGraphAddMemsetNode(n, g, deps, count, &p, c.raw)
		},
		sets: func(n driver.CUgraphNode) error { return driver.CuGraphMemsetNodeSetParams(n, &p) },
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			return driver.CuGraphExecMemsetNodeSetParams(e, n, &p, c.raw)
		},
	}, nil
}

func (f *fill) kernelNode(c *contextCore, address driver.CUdeviceptr) (calls nodeCalls, err error) {
	l, err := f.rows(c, address, 0, 1)
	if err != nil {
		return calls, err
	}
	do := func(n rt.KernelNode, deps *driver.CUgraphNode) (driver.CUgraphNode, error) {
		n.Context, n.Function, n.Grid, n.Block, n.Args = c.raw, l.function, l.grid, l.block, uint32(len(l.args))
		if code := n.Do(deps, &l.args[0]); code != 0 {
			return 0, code
		}
		return n.Node, nil
	}
	return nodeCalls{
		adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) (err error) {
			*n, err = do(rt.KernelNode{Call: rt.AddNode, Graph: g, Deps: uint32(count)}, deps)
			return err
		},
		sets: func(n driver.CUgraphNode) error {
			_, err := do(rt.KernelNode{Call: rt.SetNode, Node: n}, nil)
			return err
		},
		setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
			_, err := do(rt.KernelNode{Call: rt.SetExecNode, Exec: e, Node: n}, nil)
			return err
		},
	}, nil
}

// fillKernels are the kernels of a context that fill memory, from the first use to the end of the context.
type fillKernels struct {
	moduleCore
	blocks    uint64 // that keep the device busy
	functions [len(fillWords) * len(fillRooms)]atomic.Uintptr
}

// fillKernels returns the context's kernels, and loads them if it is the first to ask.
func (c *contextCore) fillKernels() (*fillKernels, error) {
	if k := c.shared.fills.Load(); k != nil {
		return k, nil
	}
	processors, err := c.device.known(driver.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
	if err != nil {
		return nil, err
	}
	k := &fillKernels{blocks: 8 * uint64(processors)}
	k.ctx = c
	options, err := LoadOptions{}.compiler("")
	if err != nil {
		return nil, err
	}
	defer options.unpin()
	if err := c.allocating(func() error { return k.load([]byte(fillPTX()), options) }); err != nil {
		return nil, options.explain(wrap("", err))
	}
	if !c.shared.fills.CompareAndSwap(nil, k) {
		if err := k.unload(""); err != nil {
			return nil, err
		}
	}
	return c.shared.fills.Load(), nil
}

// function returns the kernel that writes words of a size and takes values of up to room bytes.
func (k *fillKernels) function(word, room uint64) (driver.CUfunction, error) {
	i := 0
	for fillWords[i%len(fillWords)] != word || uint64(fillRooms[i/len(fillWords)]) != room {
		i++
	}
	if f := k.functions[i].Load(); f != 0 {
		return driver.CUfunction(f), nil
	}
	var f driver.CUfunction
	err := k.ctx.allocating(func() error { return k.find(&f, fillName(word, int(room))) })
	k.functions[i].Store(uintptr(f))
	return f, err
}

// endFills unloads the kernels with the end of the context.
func (c *contextCore) endFills(op string) error {
	k := c.shared.fills.Swap(nil)
	if k == nil {
		return nil
	}
	k.ctx = c
	return k.unload(op)
}

var (
	fillWords = [...]uint64{8, 4, 1}
	fillRooms = [...]int{64, mostOfValue}
)

func fillName(word uint64, room int) string {
	return "cudabind_fill" + strconv.FormatUint(word, 10) + "_" + strconv.Itoa(room)
}

// fillPTX returns the kernels, for every GPU that CUDA 11.8 and newer have.
func fillPTX() string {
	text := ".version 6.0\n.target sm_50\n.address_size 64\n"
	for _, room := range fillRooms {
		for _, word := range fillWords {
			text += strings.NewReplacer("NAME", fillName(word, room), "ROOM", strconv.Itoa(room),
				"WORD", strconv.FormatUint(word, 10), "BITS", strconv.FormatUint(8*word, 10)).Replace(fillKernel)
		}
	}
	return text
}

// fillKernel is one of them. A thread takes one word of the value, and writes it to every step-th word of
// every so many rows, so that it divides once.
const fillKernel = `
.visible .entry NAME(
	.param .u64 to, .param .u64 pitch, .param .u64 rows, .param .u64 all, .param .u32 step, .param .u32 words, .param .align 8 .b8 value[ROOM]
)
{
	.reg .pred %p<3>;
	.reg .b32 %r<8>;
	.reg .b64 %d<14>;
	.reg .b64 %word;

	mov.u32 %r0, %ctaid.x;
	mov.u32 %r1, %ntid.x;
	mov.u32 %r2, %tid.x;
	mad.lo.u32 %r0, %r0, %r1, %r2; // the column
	ld.param.u32 %r1, [step];
	setp.ge.u32 %p0, %r0, %r1;
	@%p0 bra DONE;
	ld.param.u32 %r2, [words];
	rem.u32 %r2, %r0, %r2;
	mul.lo.u32 %r2, %r2, WORD;
	cvt.u64.u32 %d0, %r2;
	mov.b64 %d1, value;
	add.u64 %d1, %d1, %d0;
	ld.param.uBITS %word, [%d1];

	mov.u32 %r3, %ctaid.y;
	mov.u32 %r4, %ntid.y;
	mov.u32 %r5, %tid.y;
	mad.lo.u32 %r3, %r3, %r4, %r5; // the row
	cvt.u64.u32 %d2, %r3;
	mov.u32 %r5, %nctaid.y;
	mul.lo.u32 %r4, %r4, %r5;
	cvt.u64.u32 %d3, %r4; // rows from one to the next
	ld.param.u64 %d4, [to];
	cvta.to.global.u64 %d4, %d4;
	ld.param.u64 %d5, [pitch];
	ld.param.u64 %d6, [rows];
	ld.param.u64 %d7, [all];
	cvt.u64.u32 %d8, %r0;
	cvt.u64.u32 %d9, %r1;
	mul.lo.u64 %d10, %d9, WORD;
	mad.lo.u64 %d4, %d8, WORD, %d4; // the column of row 0
ROW:
	setp.ge.u64 %p1, %d2, %d6;
	@%p1 bra DONE;
	mad.lo.u64 %d11, %d2, %d5, %d4;
	mov.u64 %d12, %d8;
COLUMN:
	setp.ge.u64 %p2, %d12, %d7;
	@%p2 bra NEXT;
	st.global.uBITS [%d11], %word;
	add.u64 %d11, %d11, %d10;
	add.u64 %d12, %d12, %d9;
	bra COLUMN;
NEXT:
	add.u64 %d2, %d2, %d3;
	bra ROW;
DONE:
	ret;
}
`
