package collective

import (
	"github.com/cudabind/cudabind/cuda/safe"
)

// A shape is what an operation demands of its buffers.
type shape struct {
	dst, src     span
	noDst, noSrc bool // the operation has none
	whole        bool // both have the same length
	parted       part // what has a part for each rank
	rooted       bool // root must be a rank
	root         int
	dstAtRoot    bool // the other ranks need no dst
	srcAtRoot    bool // the other ranks need no src
	apart        bool // the buffers must not overlap, not even in place
}

type part uint8

const (
	inNone part = iota
	inDst       // dst has Size times the values of src
	inSrc       // src has Size times the values of dst
	inBoth      // both have a part for each rank
)

// check checks the operation of c on s, and starts it.
func (k *call) check(op string, c *Comm, s *safe.Stream, sh *shape) error {
	r, err := c.acquire(op)
	if err != nil {
		return err
	}
	defer r.Release()
	k.comm, k.core, k.stream, k.raw = c, r, s, s.Raw()
	if k.raw == 0 {
		return refuse(op, safe.ErrClosed, "the stream")
	}
	if err := sameDevice(op, "the stream", s.Device(), r.x.Device()); err != nil {
		return err
	}
	if k.reduces() && needsHopper(k.element) && r.major < 9 {
		return refuse(op, safe.ErrNotSupported, "NCCL reduces floats of 8 bits from compute capability 9.0 on")
	}
	if sh.rooted && (sh.root < 0 || sh.root >= r.size) {
		return refuse(op, safe.ErrRange, "rank %d of %d", sh.root, r.size)
	}
	k.peer = int32(sh.root)
	if err := k.buffers(op, sh); err != nil {
		return err
	}
	if k.reduction != nil && k.reduction.at != nil {
		if err := k.buffer(op, "the factor", k.reduction.at); err != nil {
			return err
		}
	}
	k.use(r.uses.Arg(), extent{})
	return k.start(op, c)
}

// buffers checks the buffers and takes them.
func (k *call) buffers(op string, sh *shape) error {
	root := k.core.rank == sh.root
	needDst := !sh.noDst && (!sh.dstAtRoot || root)
	needSrc := !sh.noSrc && (!sh.srcAtRoot || root)
	if needDst {
		if err := k.buffer(op, "the destination", &sh.dst); err != nil {
			return err
		}
		k.dst = sh.dst.address
	}
	if needSrc {
		if err := k.buffer(op, "the source", &sh.src); err != nil {
			return err
		}
		k.src = sh.src.address
	}
	if needDst && needSrc {
		if err := sh.lengths(op, k.core.size); err != nil {
			return err
		}
		if err := sh.overlap(op, k.core); err != nil {
			return err
		}
	}
	each := &sh.src // what has the values of one rank
	if !needSrc || sh.parted == inSrc && needDst {
		each = &sh.dst
	}
	n := uint64(each.n)
	if sh.parted == inBoth {
		n /= uint64(k.core.size)
	}
	k.bytes = n * each.size
	k.count = k.bytes
	if k.reduces() {
		k.count = n
	}
	return nil
}

// buffer checks and takes one buffer.
func (k *call) buffer(op, what string, b *span) error {
	if err := b.check(op, what, k.core); err != nil {
		return err
	}
	k.use(b.arg, b.extent())
	return nil
}

// check refuses a buffer that is closed or on another device.
func (s *span) check(op, what string, c *core) error {
	if !s.there || s.address == 0 && s.n > 0 {
		return refuse(op, safe.ErrClosed, "%s", what)
	}
	return sameDevice(op, what, s.of, c.x.Device())
}

func (k *call) use(a safe.Arg, at extent) {
	k.uses[k.used], k.at[k.used] = a, at
	k.used++
}

// lengths checks the lengths of both buffers.
func (sh *shape) lengths(op string, size int) error {
	dst, src := sh.dst.n, sh.src.n
	switch {
	case sh.whole && dst != src:
		return refuse(op, safe.ErrRange, "the destination has %d values, the source %d", dst, src)
	case sh.parted == inBoth && dst%size != 0:
		return refuse(op, safe.ErrRange, "%d values have no equal parts for %d ranks", dst, size)
	case sh.parted == inDst && (dst/size != src || dst%size != 0):
		return refuse(op, safe.ErrRange, "the destination has %d values, but needs %d for each of %d ranks", dst, src, size)
	case sh.parted == inSrc && (src/size != dst || src%size != 0):
		return refuse(op, safe.ErrRange, "the source has %d values, but needs %d for each of %d ranks", src, dst, size)
	}
	return nil
}

// overlap refuses buffers that overlap, unless they lie as NCCL needs it to work in place.
func (sh *shape) overlap(op string, c *core) error {
	dst, src := &sh.dst, &sh.src
	if uint64(dst.address) >= uint64(src.address)+src.bytes() || uint64(src.address) >= uint64(dst.address)+dst.bytes() {
		return nil
	}
	in, rank := false, uint64(c.rank)
	switch {
	case sh.apart || sh.parted == inBoth:
	case sh.parted == inDst:
		in = uint64(src.address) == uint64(dst.address)+rank*src.bytes()
	case sh.parted == inSrc:
		in = uint64(dst.address) == uint64(src.address)+rank*dst.bytes()
	default:
		in = dst.address == src.address
	}
	if !in {
		return refuse(op, safe.ErrOverlap, "%d bytes at %#x and %d bytes at %#x", dst.bytes(), uint64(dst.address), src.bytes(), uint64(src.address))
	}
	return nil
}
