package collective

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
)

// AllReduce enqueues on s the reduction of src over all ranks. Every rank gets the result in
// dst, which may be src. Both have the same number of values, the same at all ranks.
// Source: ncclAllReduce.
func AllReduce[T Element](c *Comm, s *safe.Stream, dst, src *safe.Buffer[T], op Op) error {
	k := call{kind: allReduce}
	return reducing[T]("collective.AllReduce", c, s, &k, op, shape{dst: spanOf(dst), src: spanOf(src), whole: true})
}

// Reduce enqueues on s the reduction of src over all ranks. The rank root gets the result in
// dst, which may be src. The other ranks may pass nil for dst.
// Source: ncclReduce.
func Reduce[T Element](c *Comm, s *safe.Stream, dst, src *safe.Buffer[T], op Op, root int) error {
	k := call{kind: reduce}
	return reducing[T]("collective.Reduce", c, s, &k, op, shape{dst: spanOf(dst), src: spanOf(src), whole: true, rooted: true, root: root, dstAtRoot: true})
}

// ReduceScatter enqueues on s the reduction of src over all ranks. Each rank gets in dst the
// part of the result that is its own: src has Size times as many values as dst. In place,
// dst is src.Slice(r*n, (r+1)*n) at rank r.
// Source: ncclReduceScatter.
func ReduceScatter[T Element](c *Comm, s *safe.Stream, dst, src *safe.Buffer[T], op Op) error {
	k := call{kind: reduceScatter}
	return reducing[T]("collective.ReduceScatter", c, s, &k, op, shape{dst: spanOf(dst), src: spanOf(src), parted: inSrc})
}

// AllGather enqueues on s the exchange of src between all ranks: every rank gets in dst the
// values of all, in the order of ranks. dst has Size times as many values as src. In place,
// src is dst.Slice(r*n, (r+1)*n) at rank r.
// Source: ncclAllGather.
func AllGather[T any](c *Comm, s *safe.Stream, dst, src *safe.Buffer[T]) error {
	k := call{kind: allGather}
	return moving("collective.AllGather", c, s, &k, shape{dst: spanOf(dst), src: spanOf(src), parted: inDst})
}

// Broadcast enqueues on s the copy of b of the rank root to b of all other ranks.
// Source: ncclBroadcast.
func Broadcast[T any](c *Comm, s *safe.Stream, b *safe.Buffer[T], root int) error {
	k := call{kind: broadcast}
	return moving("collective.Broadcast", c, s, &k, shape{dst: spanOf(b), src: spanOf(b), whole: true, rooted: true, root: root})
}

// AllToAll enqueues on s an exchange: rank j gets the jth part of src of rank i as the ith
// part of its dst. Both have the same number of values, a multiple of Size, and must not
// overlap.
// Source: ncclAlltoAll, or ncclSend, ncclRecv before NCCL 2.28.
func AllToAll[T any](c *Comm, s *safe.Stream, dst, src *safe.Buffer[T]) error {
	k := call{kind: allToAll}
	return moving("collective.AllToAll", c, s, &k, shape{dst: spanOf(dst), src: spanOf(src), whole: true, parted: inBoth})
}

// Gather enqueues on s the copy of src of every rank to the rank root, which gets them in
// dst in the order of ranks. dst has Size times as many values as src. The other ranks may
// pass nil for dst. The two must not overlap.
// Source: ncclGather, or ncclSend, ncclRecv before NCCL 2.28.
func Gather[T any](c *Comm, s *safe.Stream, dst, src *safe.Buffer[T], root int) error {
	k := call{kind: gather}
	return moving("collective.Gather", c, s, &k, shape{dst: spanOf(dst), src: spanOf(src), parted: inDst, rooted: true, root: root, dstAtRoot: true, apart: true})
}

// Scatter enqueues on s the copy of the parts of src at the rank root to all ranks: rank i
// gets the ith part in dst. src has Size times as many values as dst. The other ranks may
// pass nil for src. The two must not overlap.
// Source: ncclScatter, or ncclSend, ncclRecv before NCCL 2.28.
func Scatter[T any](c *Comm, s *safe.Stream, dst, src *safe.Buffer[T], root int) error {
	k := call{kind: scatter}
	return moving("collective.Scatter", c, s, &k, shape{dst: spanOf(dst), src: spanOf(src), parted: inSrc, rooted: true, root: root, srcAtRoot: true, apart: true})
}

// Send enqueues on s a message with the values of src to another rank, which must receive as
// many by [Recv]. It may wait for that: put messages in both directions into one [Group].
// Source: ncclSend.
func Send[T any](c *Comm, s *safe.Stream, src *safe.Buffer[T], peer int) error {
	k := call{kind: send}
	return moving("collective.Send", c, s, &k, shape{src: spanOf(src), rooted: true, root: peer, noDst: true})
}

// Recv enqueues on s the receipt of a message from another rank into dst, which must have as many values as that rank
// sends. It may wait for that rank: see [Send]. Source: ncclRecv.
func Recv[T any](c *Comm, s *safe.Stream, dst *safe.Buffer[T], peer int) error {
	k := call{kind: recv}
	return moving("collective.Recv", c, s, &k, shape{dst: spanOf(dst), rooted: true, root: peer, noSrc: true})
}

// A span is a Buffer, whatever its type.
type span struct {
	address driver.CUdeviceptr
	n       int
	size    uint64 // of a value
	of      safe.Device
	there   bool // not that of a nil Buffer
	arg     safe.Arg
}

func spanOf[T any](b *safe.Buffer[T]) span {
	var zero T
	x := b.Context()
	return span{b.Raw(), b.Len(), uint64(unsafe.Sizeof(zero)), x.Device(), x != nil, b.Arg()}
}

func (s *span) bytes() uint64 { return uint64(s.n) * s.size }

func (s *span) extent() extent {
	return extent{uint64(s.address), uint64(s.address) + s.bytes()}
}

// reducing checks and starts an operation that computes.
func reducing[T Element](op string, c *Comm, s *safe.Stream, k *call, with Op, sh shape) error {
	k.element, k.reduction = elementOf[T](), with.reduction()
	if err := k.reduction.check(op, k.element); err != nil {
		return err
	}
	return k.check(op, c, s, &sh)
}

// moving checks and starts an operation that copies values, as bytes.
func moving(op string, c *Comm, s *safe.Stream, k *call, sh shape) error {
	k.element = anyBytes
	return k.check(op, c, s, &sh)
}

// reduces returns whether NCCL has to know the type.
func (k *call) reduces() bool { return k.kind <= reduceScatter }

// needsHopper returns whether NCCL reduces the type from compute capability 9.0 on.
func needsHopper(t nccl.NcclDataType_t) bool {
	return t == nccl.NcclFloat8e4m3 || t == nccl.NcclFloat8e5m2
}
