package collective

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Comms are the ranks of a communicator that belong to one process: see [Open].
type Comms []*Comm

// Close closes the communicator at all ranks of this process: see [Comm.Close].
func (c Comms) Close() error {
	var err error
	for _, r := range c {
		err = errors.Join(err, r.Close())
	}
	return err
}

// Shutdown closes the communicator at all ranks of this process, and waits until NCCL has released them: see
// [Comm.Shutdown].
func (c Comms) Shutdown(ctx context.Context) error {
	err := c.Close() // each may wait for the others
	for _, r := range c {
		err = errors.Join(err, r.Shutdown(ctx))
	}
	return err
}

// Open creates a communicator of GPUs of this process, with rank i in contexts[i]. Each context is one of safe.Open, of
// a device of its own. If ctx ends first, Open returns the cause.
//
// Open allows the devices to access each other's memory where the hardware can, as safe.Context.EnablePeerAccess does:
// NCCL copies directly between buffers of one process. No stream of the devices may be capturing meanwhile; captures
// that begin wait.
//
// It returns an error that matches errors.ErrUnsupported if there is no NCCL library, or one before 2.14, and
// [safe.ErrInCallback] in a host function. Source: ncclGetUniqueId, ncclCommInitRankConfig.
func Open(ctx context.Context, contexts ...*safe.Context) (Comms, error) {
	const op = "collective.Open"
	if err := mayWait(op); err != nil {
		return nil, err
	}
	if err := given(op, ctx); err != nil {
		return nil, err
	}
	if len(contexts) == 0 {
		return nil, refuse(op, safe.ErrInvalidArgument, "no context")
	}
	for i, x := range contexts {
		if x.Raw() == 0 {
			return nil, refuse(op, safe.ErrClosed, "context %d", i)
		}
		for j := range i {
			if contexts[j].Device() == x.Device() {
				return nil, refuse(op, safe.ErrInvalidArgument, "contexts %d and %d are both on %v, but each rank needs a device of its own", j, i, x.Device())
			}
		}
	}
	if err := load(); err != nil {
		return nil, named(op, err)
	}
	if err := befriend(contexts); err != nil {
		return nil, named(op, err)
	}
	s := newSession()
	cores := make([]*core, len(contexts))
	for i, x := range contexts {
		c, err := newCore(op, x, s, i, len(contexts))
		if err != nil {
			s.lose(err)
			return nil, err
		}
		cores[i] = c
	}
	if err := connect(ctx, s, one(newID), cores); err != nil {
		return nil, named(op, err)
	}
	comms := make(Comms, len(cores))
	for i, c := range cores {
		comms[i] = c.user()
	}
	return comms, nil
}

// befriend allows the devices to access each other's memory where they can.
func befriend(contexts []*safe.Context) error {
	for _, x := range contexts {
		for _, y := range contexts {
			if x == y {
				continue
			}
			can, err := x.Device().CanAccessPeer(y.Device())
			if err == nil && can {
				err = x.EnablePeerAccess(y)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// newID makes the identifier of a communicator. NCCL serves it in this process by a socket and a thread,
// which end only once all ranks have connected: so make it last.
func newID() (id nccl.NcclUniqueId, err error) {
	if err := load(); err != nil {
		return id, err
	}
	return id, explained(nccl.NcclGetUniqueId(&id))
}

// multicast is the variable by which NCCL uses NVLink multicast.
const multicast = "NCCL_NVLS_ENABLE"

var prepare sync.Once

// load opens NCCL. It switches NVLink multicast off before NCCL reads its variables, unless
// the program or the user has set it: no field of NCCL's options does that for all versions.
func load() error {
	prepare.Do(func() {
		if _, set := os.LookupEnv(multicast); !set {
			os.Setenv(multicast, "0")
		}
	})
	if _, _, err := nccl.Library(); err != nil {
		return rt.Simulated(err)
	}
	return nccl.Find("ncclCommInitRankConfig")
}

// options returns the options of a blocking communicator: NCCL starts a thread for each call of others.
func options() *nccl.NcclConfig_t {
	const unset = nccl.NCCL_CONFIG_UNDEF_INT
	return &nccl.NcclConfig_t{
		Size:     uint64(unsafe.Sizeof(nccl.NcclConfig_t{})),
		Magic:    nccl.NCCL_API_MAGIC,
		Version:  nccl.NCCL_VERSION_CODE,
		Blocking: 1,

		CgaClusterSize: unset, MinCTAs: unset, MaxCTAs: unset, SplitShare: unset, TrafficClass: unset,
		CollnetEnable: unset, CTAPolicy: unset, ShrinkShare: unset, NvlsCTAs: unset, NChannelsPerNetPeer: unset,
		NvlinkCentricSched: unset, GraphUsageMode: unset, NumRmaCtx: unset, MaxP2pPeers: unset,
		GraphStreamOrdering: unset, LaunchOrderImplicit: unset, NumRmaSig: unset, RmaEagerInit: unset,
		HostCftMode: unset, NvlsHostMode: unset,
	}
}

// connect has NCCL make the communicators of cores and connect them with the other ranks. If
// it fails, the session is lost.
func connect(ctx context.Context, s *session, identify identifiers, cores []*core) error {
	contexts := make([]*safe.Context, len(cores))
	for i, c := range cores {
		contexts[i] = c.x
	}
	var err error
	outer := contexts[0].WithoutCaptures(func() error {
		err = initialize(ctx, identify, cores)
		return nil
	}, contexts[1:]...)
	if err = errors.Join(outer, err); err != nil {
		s.fail(err)
	}
	return err
}

// initialize is connect inside WithoutCaptures. It makes no identifier if the ranks will not connect.
func initialize(ctx context.Context, identify identifiers, cores []*core) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ids, err := identify()
	if err != nil {
		return err
	}
	stop := failAfter(ctx, cores)
	for _, c := range inOrder(slices.Clone(cores)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.count(ids[0])
	}
	err = abortable(ctx, stop, cores, func() error {
		for _, c := range cores {
			if err := driver.CuCtxSetCurrent(c.x.Raw()); err != nil {
				return err
			}
			if err := c.make(ids); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range cores {
		c.ready.Store(err == nil)
	}
	return err
}

// failAfter aborts the communicators when ctx ends, until stop, which returns false if that has happened. Call it before
// their mu is locked: who has that locked may wait for other ranks.
func failAfter(ctx context.Context, cores []*core) (stop func() bool) {
	return context.AfterFunc(ctx, func() { failAll(cores, context.Cause(ctx)) })
}

func failAll(cores []*core, cause error) {
	for _, c := range cores {
		c.session.fail(cause)
	}
}

// abortable calls f in a group of NCCL, whose end may wait for other ranks, and then stop of failAfter. It returns why the
// communicators were aborted, if they were. mu of all is held.
func abortable(ctx context.Context, stop func() bool, cores []*core, f func() error) error {
	err := usable(cores)
	if err == nil {
		err = nccl.NcclGroupStart()
	}
	if err == nil {
		if err = f(); err != nil {
			failAll(cores, explained(err)) // else the end of the group would wait for what it lacks
		}
		err = both(err, nccl.NcclGroupEnd())
	}
	if !stop() {
		return context.Cause(ctx)
	}
	for _, c := range cores {
		err = c.because(err)
	}
	return err
}

// usable returns why NCCL must not be called any more, or nil.
func usable(cores []*core) error {
	for _, c := range cores {
		if err := c.err(); err != nil { // NCCL may have released it
			return err
		}
		if err := c.session.usable(); err != nil {
			return err
		}
	}
	return nil
}
