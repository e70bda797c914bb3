package collective

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Options say which rank a process is, and where the ranks meet. [FromEnv] makes them of
// what launchers set.
type Options struct {
	Rank int // of this process, from 0 to Size-1
	Size int // number of ranks
	// Address is where rank 0 listens and the other ranks find it, as host:port with a port
	// from 1 to 65535. Rank 0 looks up the host. It listens on all interfaces unless the host
	// has only loopback addresses and is not the name of the machine.
	Address string
	// Listen is the host:port where rank 0 listens, if it is not as Address says.
	Listen string
	// Secret, if set, is what all ranks must know to take part. It does not cross the network, but anyone who sees the
	// proofs of it can try guesses: make it long and random. The connections are not encrypted, and neither is NCCL's
	// data.
	Secret string
	// IDs, if set, identify the communicator: the program makes them by [NewUniqueID] and gives all
	// ranks the same, by MPI for instance. Then the ranks do not meet at Address, and keep no
	// connections of this package: Address, Listen, Secret and PeerTimeout are not used. One is
	// enough for hundreds of ranks. NCCL connects thousands faster with several, made by
	// different ranks, from 2.23 on.
	//
	// This package then knows of no other process. A rank learns of one that is lost only by what
	// NCCL finds, which may be nothing, and [Comm.Abort] aborts the ranks of this process alone. Wait
	// by [Comm.Wait] with a deadline.
	IDs []UniqueID
	// PeerTimeout is how long nothing may be heard of a rank before it counts as lost. 0
	// means 10 s; less than 3 s is refused, as ranks say every second that they live.
	PeerTimeout time.Duration
	// LocalRank is the number of this process among those on its machine: usually the
	// ordinal of its device. Join does not use it.
	LocalRank int
}

// The least and the usual Options.PeerTimeout.
const (
	leastTimeout = 3 * beatInterval
	usualTimeout = 10 * time.Second
)

func (o *Options) timeout() time.Duration {
	if o.PeerTimeout == 0 {
		return usualTimeout
	}
	return o.PeerTimeout
}

// mostRanks bounds Options.Size, so that a mistyped number costs no memory.
const mostRanks = 1 << 20

// check returns an error that names the field.
func (o *Options) check(op string) error {
	switch {
	case o.Size < 1 || o.Size > mostRanks:
		return refuse(op, safe.ErrRange, "Options.Size is %d", o.Size)
	case o.Rank < 0 || o.Rank >= o.Size:
		return refuse(op, safe.ErrRange, "Options.Rank is %d, but there are ranks 0 to %d", o.Rank, o.Size-1)
	case len(o.IDs) > o.Size:
		return refuse(op, safe.ErrRange, "Options.IDs has %d identifiers for %d ranks", len(o.IDs), o.Size)
	case len(o.IDs) > 0:
		return nil
	case o.PeerTimeout != 0 && o.PeerTimeout < leastTimeout:
		return refuse(op, safe.ErrRange, "Options.PeerTimeout is %v, less than %v", o.PeerTimeout, leastTimeout)
	}
	for name, address := range map[string]string{"Address": o.Address, "Listen": o.Listen} {
		if address == "" && (name == "Listen" || o.Size == 1) {
			continue
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return refuse(op, safe.ErrInvalidArgument, "Options.%s is %q instead of host:port: %v", name, address, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return refuse(op, safe.ErrRange, "Options.%s is %q: the port must be a number from 1 to 65535", name, address)
		}
		if host == "" && name == "Address" {
			return refuse(op, safe.ErrInvalidArgument, "Options.Address is %q: name the host of rank 0", address)
		}
	}
	return nil
}

// listenAddress is where rank 0 listens.
func (o *Options) listenAddress(ctx context.Context) (string, error) {
	if o.Listen != "" {
		return o.Listen, nil
	}
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return "", err
	}
	all := net.JoinHostPort("", port)
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", fmt.Errorf("rank 0 does not know the host of Options.Address %s: set Options.Listen, to %q for all interfaces: %w", o.Address, all, err)
	}
	machine, _ := os.Hostname()
	if isLocal(host, machine, found) {
		return o.Address, nil
	}
	return all, nil
}

// isLocal returns whether a host with these addresses stands for this machine alone. The name of the
// machine does not, even if it has only a loopback address: Debian, for one, gives it 127.0.1.1.
func isLocal(host, machine string, addresses []netip.Addr) bool {
	for _, a := range addresses {
		if !a.Unmap().IsLoopback() {
			return false
		}
	}
	first := func(name string) string { return strings.ToLower(strings.Split(name, ".")[0]) }
	return first(host) != first(machine) || first(host) == "localhost"
}

// Join makes the GPU of x one rank of a communicator that spans processes and machines. Each process calls it for its
// own rank; x is a context of safe.Open. Join returns when all ranks are connected. If ctx ends first, for instance
// because a rank never comes, it returns the cause; rank 0 names the ranks that are missing. Give ctx a deadline.
//
// With Options.IDs, the program and NCCL do all that. Otherwise the connections to rank 0 stay open. If one of them
// breaks, or if nothing is heard of a rank for Options.PeerTimeout, the communicators of all ranks are aborted with a
// [*PeerError] that names the rank.
//
// No stream of the device may be capturing meanwhile; captures that begin wait. The other errors are those of [Open].
// Source: ncclGetUniqueId, ncclCommInitRankConfig, ncclCommInitRankScalable.
func Join(ctx context.Context, x *safe.Context, o Options) (*Comm, error) {
	const op = "collective.Join"
	if err := mayWait(op); err != nil { // before the other ranks take this one for present
		return nil, err
	}
	if err := given(op, ctx); err != nil {
		return nil, err
	}
	if err := o.check(op); err != nil {
		return nil, err
	}
	if x.Raw() == 0 {
		return nil, refuse(op, safe.ErrClosed, "the context")
	}
	if err := load(); err != nil {
		return nil, named(op, err)
	}
	if len(o.IDs) > 1 {
		if err := nccl.Find("ncclCommInitRankScalable"); err != nil {
			return nil, named(op, err)
		}
	}
	s := newSession()
	var identify identifiers
	if len(o.IDs) > 0 {
		identify = exchanged(o.IDs)
	} else {
		met, err := meet(ctx, s, &o)
		if err != nil {
			return nil, named(op, err)
		}
		identify = one(met)
	}
	c, err := newCore(op, x, s, o.Rank, o.Size)
	if err != nil {
		s.fail(err)
		if s.peers != nil {
			s.peers.end()
		}
		return nil, err
	}
	if err := connect(ctx, s, identify, []*core{c}); err != nil {
		return nil, named(op, err)
	}
	return c.user(), nil
}

// meet brings all ranks together. They get the identifier that rank 0 makes by identify.
func meet(ctx context.Context, s *session, o *Options) (identify func() (nccl.NcclUniqueId, error), err error) {
	if o.Rank > 0 {
		m, id, err := dial(ctx, s, o)
		if err == nil {
			s.peers = m
			go m.listen()
		}
		return func() (nccl.NcclUniqueId, error) { return id, nil }, err
	}
	if o.Size == 1 {
		return newID, nil
	}
	at, err := o.listenAddress(ctx)
	if err != nil {
		return nil, err
	}
	var l net.ListenConfig
	server, err := l.Listen(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot listen: %w", err)
	}
	h := newHub(s, server, o)
	s.peers = h
	if err := h.wait(ctx); err != nil {
		h.fail(err)
		h.end()
		return nil, err
	}
	return h.welcome, nil
}
