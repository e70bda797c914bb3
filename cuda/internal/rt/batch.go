package rt

import (
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A list holds calls for [Batch] without Go pointers: for each a word with its kind and
// its size in words, and its arguments but for the stream. Host addresses in it are memory
// of C, or pinned.

// listed is a kind of call in a list.
type listed uint32

const (
	noCall listed = iota
	launchCall
	otherCall // a word with the function and, in the upper half, which argument is the stream; the arguments
)

// attributeWords is the size of a launch attribute.
const attributeWords = 9

var _ = [1]struct{}{}[unsafe.Sizeof(driver.CUlaunchAttribute{})-8*attributeWords]

func header(c listed, words int) uint64 { return uint64(words)<<32 | uint64(c) }

// appendCall appends a call with args, of which the one at index is the stream.
func appendCall(list []uint64, fn function, at int, args ...uint64) []uint64 {
	return append(append(list, header(otherCall, 2+len(args)), two(uint32(fn), uint32(at))), args...)
}

// AppendNothing appends what no call is made for.
func AppendNothing(list []uint64) []uint64 { return append(list, header(noCall, 1)) }

// AppendRecord appends a record of an event.
func AppendRecord(list []uint64, e driver.CUevent) []uint64 {
	return appendCall(list, fnEventRecord, 1, uint64(e), 0)
}

// AppendWait appends a wait for an event.
func AppendWait(list []uint64, e driver.CUevent) []uint64 {
	return appendCall(list, fnStreamWaitEvent, 0, 0, uint64(e), 0)
}

// AppendGraph appends a launch of an executable.
func AppendGraph(list []uint64, e driver.CUgraphExec) []uint64 {
	return appendCall(list, fnGraphLaunch, 1, uint64(e), 0)
}

// AppendHost appends a host function: see [HostFunc].
func AppendHost(list []uint64, token uintptr) []uint64 {
	return appendCall(list, fnLaunchHostFunc, 0, 0, uint64(HostFunction()), uint64(token))
}

// Append appends the launch of l.Function with l.Config and its attributes. args points to
// l.Args arguments.
func (l *Launch) Append(list []uint64, args *Arg) []uint64 {
	at, c := len(list), &l.Config
	list = append(slices.Grow(list, 7+3*int(l.Args)), 0, uint64(l.Function),
		two(c.GridDimX, c.GridDimY), two(c.GridDimZ, c.BlockDimX), two(c.BlockDimY, c.BlockDimZ),
		two(c.SharedMemBytes, l.Args), uint64(c.NumAttrs))
	if c.NumAttrs > 0 {
		list = append(list, unsafe.Slice((*uint64)(unsafe.Pointer(c.Attrs)), attributeWords*c.NumAttrs)...)
	}
	list = appendArgs(list, args, l.Args)
	list[at] = header(launchCall, len(list)-at)
	return list
}

func two(low, high uint32) uint64 { return uint64(high)<<32 | uint64(low) }

// appendArgs appends n arguments.
func appendArgs(list []uint64, args *Arg, n uint32) []uint64 {
	all := unsafe.Slice(args, n)
	for i := range all {
		list = all[i].append(list)
	}
	return list
}

// append appends the argument's size in words and its value.
func (a *Arg) append(list []uint64) []uint64 {
	size := int(a.Size())
	words := max(1, (size+7)/8)
	switch {
	case a.Kind() == Far:
		list = append(list, uint64(words))
		list = append(list, make([]uint64, words)...)
		value := unsafe.Slice((*byte)(unsafe.Pointer(&list[len(list)-words])), size)
		copy(value, unsafe.Slice((*byte)(a.Pointer), size))
		return list
	case words == 1:
		return append(list, 1, a.A)
	}
	return append(list, 2, a.A, a.B)
}

// Append appends the copy, memset or launch, without its contexts and waits. Host addresses are in
// c.Dst and c.Src. host is the list of a launch, as for [Copy.Do].
func (c *Copy) Append(list []uint64, host unsafe.Pointer) []uint64 {
	if c.Kind == FillLaunch {
		launch := (*uint64)(host)
		return append(list, unsafe.Slice(launch, *launch>>32)...)
	}
	var args [6]uint64
	fn, n := c.arguments(&args)
	return appendCall(list, fn, int(n-1), args[:n]...)
}

// Batch makes the first n calls of a list on a stream, until one fails. It returns the
// code and the number of calls that have succeeded. With outside it makes none on a
// capturing stream.
func Batch(context driver.CUcontext, stream driver.CUstream, list []uint64, n int, outside bool) (code driver.CUresult, done int) {
	r := run(context, stream, unsafe.SliceData(list), n, outside)
	return driver.CUresult(uint32(r)), int(r >> 32)
}

// sameList marks a dependency that is the index of a node of the same list.
const sameList = 1 << 63

// Append appends the node to a list for [KernelNodes]. args points to n.Args arguments. The
// node depends on the nodes in deps, and on those of the same list in after.
func (n *KernelNode) Append(list []uint64, args *Arg, deps []driver.CUgraphNode, after []int) []uint64 {
	at, g, b := len(list), &n.Grid, &n.Block
	list = append(slices.Grow(list, 6+len(deps)+len(after)+3*int(n.Args)), 0, uint64(n.Function),
		two(g[0], g[1]), two(g[2], b[0]), two(b[1], b[2]), two(n.SharedBytes, n.Args))
	for _, d := range deps {
		list = append(list, uint64(d))
	}
	for _, i := range after {
		list = append(list, sameList|uint64(i))
	}
	list = appendArgs(list, args, n.Args)
	list[at] = two(uint32(len(list)-at), uint32(len(deps)+len(after)))
	return list
}

// KernelNodes adds the nodes of a list to a graph, and sets nodes, or changes nodes in a
// graph or an executable, until a call fails. It returns the code and the number of calls
// that have succeeded. The list is used up: it may have the handles of the nodes afterwards.
func KernelNodes(context driver.CUcontext, of uintptr, call NodeCall, list []uint64, nodes []driver.CUgraphNode) (code driver.CUresult, done int) {
	r := change(context, of, call, len(nodes), unsafe.SliceData(list), unsafe.SliceData(nodes))
	return driver.CUresult(uint32(r)), int(r >> 32)
}

// LaunchConfig returns the configuration of a launch at the beginning of a list, without
// its stream and attributes.
func LaunchConfig(list []uint64) driver.CUlaunchConfig {
	high := func(i int) uint32 { return uint32(list[i] >> 32) }
	return driver.CUlaunchConfig{
		GridDimX: uint32(list[2]), GridDimY: high(2), GridDimZ: uint32(list[3]),
		BlockDimX: high(3), BlockDimY: uint32(list[4]), BlockDimZ: high(4), SharedMemBytes: uint32(list[5]),
	}
}
