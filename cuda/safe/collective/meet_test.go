//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// How ranks meet, within one process. Runs on the simulated driver with a double of NCCL.

package collective

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/loopback"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// freeAddress returns an address where nothing listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := loopback.Address()
	require.NoError(t, err)
	return address
}

// met is the result of meet.
type met struct {
	session *session
	id      nccl.NcclUniqueId
	err     error
}

// meets has a rank meet the others.
func meets(ctx context.Context, o Options) chan met {
	done := make(chan met, 1)
	go func() {
		s := newSession()
		m := met{session: s}
		identify, err := meet(ctx, s, &o)
		if m.err = err; err == nil {
			m.id, m.err = identify()
		}
		done <- m
	}()
	return done
}

// leaves ends the sessions.
func leaves(all ...met) {
	for _, m := range all {
		if m.session.peers != nil {
			m.session.peers.leave()
			m.session.peers.end()
		}
	}
}

func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func TestMeet(t *testing.T) {
	needsDouble(t)
	o := Options{Size: 3, Address: freeAddress(t), Secret: "x"}
	var ranks []chan met
	for _, r := range []int{2, 0, 1} { // rank 0 need not be the first
		o.Rank = r
		ranks = append(ranks, meets(soon(t), o))
	}
	var all []met
	for _, r := range ranks {
		m := <-r
		require.NoError(t, m.err)
		all = append(all, m)
	}
	assert.Equal(t, all[0].id, all[1].id)
	assert.Equal(t, all[0].id, all[2].id)

	all[0].session.peers.leave() // rank 2 ends in order
	all[0].session.peers.end()
	for _, m := range all[1:] {
		assert.Eventually(t, func() bool { return m.session.usable() != nil }, time.Minute, time.Millisecond)
		var e *PeerError
		require.ErrorAs(t, m.session.usable(), &e)
		assert.Equal(t, PeerError{2, "it has closed the communicator"}, *e)
		assert.NoError(t, m.session.failure())
	}
	all[2].session.fail(errors.New("on fire")) // rank 1
	assert.Eventually(t, func() bool { return all[1].session.failure() != nil }, time.Minute, time.Millisecond)
	assert.ErrorIs(t, all[1].session.failure(), ErrPeerLost)
	assert.ErrorContains(t, all[1].session.failure(), "rank 1 is lost: it has failed: on fire")
	leaves(all...)
}

// TestMeetLost: the connection of a rank ends without a farewell.
func TestMeetLost(t *testing.T) {
	needsDouble(t)
	for _, who := range []int{0, 1} {
		o := Options{Size: 3, Address: freeAddress(t)}
		all := make([]met, 3)
		var ranks []chan met
		for r := range 3 {
			o.Rank = r
			ranks = append(ranks, meets(soon(t), o))
		}
		for r := range 3 {
			all[r] = <-ranks[r]
			require.NoError(t, all[r].err)
		}
		switch p := all[who].session.peers.(type) {
		case *member:
			p.close()
		case *hub:
			p.mu.Lock()
			for _, s := range p.ranks[1:] {
				s.close()
			}
			p.mu.Unlock()
		}
		for r, m := range all {
			if r == who {
				continue
			}
			assert.Eventually(t, func() bool { return m.session.failure() != nil }, time.Minute, time.Millisecond)
			var e *PeerError
			require.ErrorAs(t, m.session.failure(), &e)
			assert.Equal(t, who, e.Rank)
		}
		leaves(all...)
	}
}

// TestMeetLostAtOnce: rank 0 tells which rank is lost also if NCCL lets go of its communicator
// at once, and its connections end.
func TestMeetLostAtOnce(t *testing.T) {
	o := Options{Size: 3, Rank: 1, Address: freeAddress(t)}
	for range 200 {
		h := hosts(t, o)
		one, two := o, o
		two.Rank = 2
		ranks := []chan met{meets(soon(t), one), meets(soon(t), two)}
		h.welcomeAll(t)
		all := []met{<-ranks[0], <-ranks[1]}
		require.NoError(t, errors.Join(all[0].err, all[1].err))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for h.session.failure() == nil {
			}
			h.end()
		}()
		all[0].session.peers.(*member).close()
		assert.Eventually(t, func() bool { return all[1].session.failure() != nil }, time.Minute, time.Millisecond)
		var e *PeerError
		require.ErrorAs(t, all[1].session.failure(), &e)
		require.Equal(t, 1, e.Rank)
		<-ended
		leaves(all...)
	}
}

// TestMeetRefused: whoever does not belong is told why, and the others go on.
func TestMeetRefused(t *testing.T) {
	o := Options{Size: 3, Rank: 1, Address: freeAddress(t), Secret: "right"}
	h := hosts(t, o)
	silent, err := net.Dial("tcp", o.Address)
	require.NoError(t, err)
	defer silent.Close()
	one := meets(soon(t), o)
	h.has(t, 1)
	for name, c := range map[string]struct {
		change func(o *Options)
		says   string
	}{
		"secret":    {func(o *Options) { o.Secret = "wrong" }, "rank 0 refused: the secret differs from that of rank 0"},
		"no secret": {func(o *Options) { o.Secret = "" }, "rank 0 refused: the secret differs from that of rank 0"},
		"size":      {func(o *Options) { o.Size = 4 }, "rank 0 refused: rank 2 was started with size 4, rank 0 with size 3"},
		"twice":     {func(o *Options) { o.Rank = 1 }, "rank 0 refused: rank 1 has joined already: two processes have the same rank"},
	} {
		o := o
		o.Rank = 2
		c.change(&o)
		m := <-meets(soon(t), o)
		assert.ErrorContains(t, m.err, c.says, name)
	}
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "", "\x02\x00\x03abc", string(bye(1).append(nil))} {
		conn, err := net.Dial("tcp", o.Address)
		require.NoError(t, err)
		_, err = conn.Write([]byte(garbage))
		require.NoError(t, err)
		_ = conn.(*net.TCPConn).CloseWrite()      // which fails if rank 0 has hung up
		if _, err = readFrame(conn); err == nil { // the greeting
			if f, err := readFrame(conn); err == nil {
				assert.Equal(t, frameRefusal, f.kind)
			}
		}
		conn.Close()
	}
	o.Rank = 2
	two := meets(soon(t), o)
	h.welcomeAll(t)
	all := []met{<-one, <-two}
	require.NoError(t, errors.Join(all[0].err, all[1].err))
	leaves(all...)
}

// hosts makes rank 0 without waiting for the others.
func hosts(t *testing.T, o Options) *hub {
	t.Helper()
	l, err := net.Listen("tcp", o.Address)
	require.NoError(t, err)
	h := newHub(newSession(), l, &o)
	t.Cleanup(h.end)
	return h
}

// has waits until n ranks have joined.
func (h *hub) has(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.joined == n
	}, time.Minute, time.Millisecond)
}

// welcomeAll waits until all ranks have joined, and gives them the identifier.
func (h *hub) welcomeAll(t *testing.T) {
	t.Helper()
	require.NoError(t, h.wait(soon(t)))
	_, err := h.welcome()
	require.NoError(t, err)
}

// TestMeetAgain: the place of a rank that dies before all have come is free again.
func TestMeetAgain(t *testing.T) {
	o := Options{Size: 3, Rank: 1, Address: freeAddress(t)}
	h := hosts(t, o)
	ctx, cancel := context.WithCancel(soon(t))
	first := meets(ctx, o)
	h.has(t, 1)
	cancel()
	assert.ErrorIs(t, (<-first).err, context.Canceled)
	h.has(t, 0)
	one := meets(soon(t), o)
	h.has(t, 1)
	o.Rank = 2
	two := meets(soon(t), o)
	h.welcomeAll(t)
	all := []met{<-one, <-two}
	require.NoError(t, errors.Join(all[0].err, all[1].err))
	leaves(all...)
}

// TestMeetEnds: a rank never comes.
func TestMeetEnds(t *testing.T) {
	o := Options{Size: 4, Rank: 2, Address: freeAddress(t)}
	h := hosts(t, o)
	two := meets(soon(t), o)
	h.has(t, 1)
	assert.Error(t, (<-meets(soon(t), o)).err)
	cause := errors.New("too long")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	err := h.wait(ctx)
	assert.ErrorIs(t, err, cause)
	assert.ErrorContains(t, err, "ranks that have not come: 1 3; last refused: rank 2 has joined already")
	h.fail(err)
	h.end()
	err = (<-two).err
	assert.ErrorIs(t, err, ErrPeerLost)
	assert.ErrorContains(t, err, "rank 0 is lost: it has failed: too long; ranks that have not come: 1 3")

	needsDouble(t)
	for _, rank := range []int{0, 2} {
		o.Rank = rank
		ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer stop()
		err := (<-meets(ctx, o)).err
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, []string{"ranks that have not come: 1 2 3", "", "rank 0 at " + o.Address + " was not reached"}[rank])
	}
}

func TestOptions(t *testing.T) {
	x := open(t, 1)[0]
	for name, c := range map[string]struct {
		o    Options
		want error
		says string
	}{
		"zero":       {Options{}, safe.ErrRange, "Options.Size is 0"},
		"too many":   {Options{Size: 1 << 30}, safe.ErrRange, "Options.Size is 1073741824"},
		"rank":       {Options{Size: 2, Rank: 2}, safe.ErrRange, "Options.Rank is 2, but there are ranks 0 to 1"},
		"negative":   {Options{Size: 2, Rank: -1}, safe.ErrRange, "Options.Rank is -1"},
		"no address": {Options{Size: 2}, safe.ErrInvalidArgument, `Options.Address is "" instead of host:port`},
		"no port":    {Options{Size: 2, Address: "host"}, safe.ErrInvalidArgument, `Options.Address is "host" instead of host:port`},
		"listen":     {Options{Size: 2, Address: "host:1", Listen: "x"}, safe.ErrInvalidArgument, `Options.Listen is "x"`},
		"port 0":     {Options{Size: 2, Address: "host:0"}, safe.ErrRange, `Options.Address is "host:0": the port must be a number from 1 to 65535`},
		"port -1":    {Options{Size: 2, Address: "host:-1"}, safe.ErrRange, `Options.Address is "host:-1": the port must be`},
		"port 99999": {Options{Size: 2, Address: "host:99999"}, safe.ErrRange, `Options.Address is "host:99999": the port must be`},
		"empty port": {Options{Size: 2, Address: "host:"}, safe.ErrRange, `Options.Address is "host:": the port must be`},
		"a service":  {Options{Size: 2, Address: "host:http"}, safe.ErrRange, `Options.Address is "host:http": the port must be`},
		"no host":    {Options{Size: 2, Address: ":1"}, safe.ErrInvalidArgument, `Options.Address is ":1": name the host of rank 0`},
		"listen 0":   {Options{Size: 2, Address: "host:1", Listen: ":0"}, safe.ErrRange, `Options.Listen is ":0": the port must be`},
		"unknown":    {Options{Size: 2, Address: "no host:1"}, nil, `rank 0 does not know the host of Options.Address no host:1: set Options.Listen, to ":1" for all interfaces`},
		"timeout":    {Options{Size: 2, Address: "host:1", PeerTimeout: time.Second}, safe.ErrRange, "Options.PeerTimeout is 1s, less than 3s"},
	} {
		_, err := Join(soon(t), x, c.o)
		if c.want != nil {
			assert.ErrorIs(t, err, c.want, name)
		}
		assert.ErrorContains(t, err, c.says, name)
	}
	_, err := Join(soon(t), nil, Options{Size: 1})
	assert.ErrorIs(t, err, safe.ErrClosed)
}

// TestListenAddress: rank 0 listens on the loopback interface only if its address means that, however
// it is written.
func TestListenAddress(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Address: "127.0.0.1:1"}, "127.0.0.1:1"},
		{Options{Address: "127.1.2.3:1"}, "127.1.2.3:1"},
		{Options{Address: "[::1]:1"}, "[::1]:1"},
		{Options{Address: "[::1%lo]:1"}, "[::1%lo]:1"},
		{Options{Address: "[::ffff:127.0.0.1]:1"}, "[::ffff:127.0.0.1]:1"},
		{Options{Address: "localhost:1"}, "localhost:1"},
		{Options{Address: "LOCALHOST:1"}, "LOCALHOST:1"},
		{Options{Address: "10.0.0.1:1"}, ":1"},
		{Options{Address: "[fe80::1]:1"}, ":1"},
		{Options{Address: "0.0.0.0:1"}, ":1"},
		{Options{Address: "gpu7:1", Listen: "10.0.0.1:2"}, "10.0.0.1:2"},
	} {
		got, err := c.o.listenAddress(soon(t))
		assert.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	for _, address := range []string{"localhost.:1", "127.1:1", "2130706433:1", "ip6-localhost:1"} { // not every resolver knows these
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		o := Options{Address: address}
		got, err := o.listenAddress(ctx)
		cancel()
		if err == nil {
			assert.Equal(t, address, got)
		}
	}
	for _, c := range []struct {
		name, host, machine string
		addresses           []string
		want                bool
	}{
		{"the name of the machine on Debian", "gpu7", "gpu7", []string{"127.0.1.1"}, false},
		{"with a domain", "GPU7.cluster", "gpu7", []string{"127.0.1.1"}, false},
		{"a machine of another domain", "gpu7", "gpu7.cluster", []string{"::1", "127.0.0.1"}, false},
		{"a machine without a name of its own", "localhost", "localhost", []string{"::1", "127.0.0.1"}, true},
		{"with its domain", "localhost", "localhost.localdomain", []string{"127.0.0.1"}, true},
		{"another name of the loopback interface", "loop", "gpu7", []string{"127.0.0.1"}, true},
		{"an address of a network, too", "loop", "gpu7", []string{"127.0.0.1", "10.0.0.1"}, false},
	} {
		var addresses []netip.Addr
		for _, a := range c.addresses {
			addresses = append(addresses, netip.MustParseAddr(a))
		}
		assert.Equal(t, c.want, isLocal(c.host, c.machine, addresses), c.name)
	}
}
