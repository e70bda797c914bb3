package collective

import (
	"context"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
)

// NoColor is the color of ranks that a split leaves out.
const NoColor = nccl.NCCL_SPLIT_NOCOLOR

// Split makes new communicators from the ranks of c: those with the same color go together, numbered by ascending key,
// equal keys in the old order. All ranks must call it; a process with several ranks calls [Comms.Split]. It returns nil
// for a rank with [NoColor].
//
// Wait for the work of c before. If ctx ends first, Split aborts c and returns the cause. The new communicator fails
// and is aborted together with c, but must be closed separately.
//
// Split returns [safe.ErrCapturing] while a stream of the device is capturing, and the other ranks then wait for this
// one; captures that begin meanwhile wait for Split. It returns a [PeerError] once a rank of another process has closed
// the communicator, an error that matches errors.ErrUnsupported with NCCL before 2.18, and [safe.ErrInCallback] in a
// host function. Source: ncclCommSplit.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	all, err := splitAll(ctx, "Comm.Split", Comms{c}, []int{color}, []int{key})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Split splits the communicator as [Comm.Split] does, for all ranks of this process: colors[i] is for c[i], and the
// rank in c is the key. The results have the same order as c.
func (c Comms) Split(ctx context.Context, colors ...int) (Comms, error) {
	keys := make([]int, len(c))
	for i, r := range c {
		keys[i] = r.Rank()
	}
	return splitAll(ctx, "Comms.Split", c, colors, keys)
}

func splitAll(ctx context.Context, op string, comms Comms, colors, keys []int) (Comms, error) {
	if err := mayWait(op); err != nil {
		return nil, err
	}
	if err := given(op, ctx); err != nil {
		return nil, err
	}
	if len(colors) != len(comms) || len(comms) == 0 {
		return nil, refuse(op, safe.ErrInvalidArgument, "%d colors for %d ranks", len(colors), len(comms))
	}
	if err := nccl.Find("ncclCommSplit"); err != nil {
		return nil, named(op, err)
	}
	p := make([]*core, len(comms))
	contexts := make([]*safe.Context, len(comms))
	for i, c := range comms {
		if colors[i] < NoColor || int(int32(colors[i])) != colors[i] || int(int32(keys[i])) != keys[i] {
			return nil, refuse(op, safe.ErrRange, "color %d, key %d", colors[i], keys[i])
		}
		r, err := c.acquire(op)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		p[i], contexts[i] = r, r.x
	}
	if len(inOrder(slices.Clone(p))) < len(p) {
		return nil, refuse(op, safe.ErrInvalidArgument, "a communicator is listed twice")
	}
	children := make([]*core, len(p))
	for i, c := range p {
		child, err := newCore(op, c.x, c.session, 0, 0)
		if err != nil {
			discard(children[:i])
			return nil, err
		}
		children[i] = child
	}
	var err error
	outer := contexts[0].WithoutCaptures(func() error {
		err = divide(ctx, p, children, colors, keys)
		return nil
	}, contexts[1:]...)
	if outer != nil { // NCCL was not called
		discard(children)
		return nil, named(op, outer)
	}
	if err != nil {
		failAll(p, err) // of a process with several, from Join
		return nil, named(op, err)
	}
	result := make(Comms, len(children))
	for i, c := range children {
		if c.size == 0 { // of NoColor
			discard(children[i : i+1])
			continue
		}
		result[i] = c.user()
	}
	return result, nil
}

// discard ends communicators that NCCL has not made.
func discard(all []*core) {
	for _, c := range all {
		c.leave(safe.ErrClosed)
		c.begin()
	}
}

// divide has NCCL split all ranks of this process. No other call may come before all are split,
// and the new communicators do not end before. If ctx ends first, the ranks are aborted.
func divide(ctx context.Context, p, children []*core, colors, keys []int) error {
	stop := failAfter(ctx, p)
	for _, c := range inOrder(slices.Concat(p, children)) {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	err := abortable(ctx, stop, slices.Concat(p, children), func() (err error) {
		for i, c := range p {
			err = driver.CuCtxSetCurrent(c.x.Raw())
			if err == nil {
				err = nccl.NcclCommSplit(*c.raw, int32(colors[i]), int32(keys[i]), children[i].raw, nil)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for i, c := range children {
		if *c.raw != 0 { // NCCL has made it, perhaps in a call that has failed
			c.count(p[i].local.id)
		}
	}
	if err != nil {
		return err
	}
	for _, c := range children {
		if *c.raw == 0 { // of NoColor
			continue
		}
		var rank, size int32
		if err := both(nccl.NcclCommUserRank(*c.raw, &rank), nccl.NcclCommCount(*c.raw, &size)); err != nil {
			return explained(err)
		}
		c.rank, c.size = int(rank), int(size)
		c.ready.Store(true)
	}
	return nil
}
