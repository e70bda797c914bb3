//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Rank 0 and whoever connects to it: strangers, and ranks that say what they must not.

package collective

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// joins connects as a rank that knows the secret, and returns once rank 0 has taken it in.
func joins(t *testing.T, o Options, rank int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", o.Address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	joined(t, conn, &o, rank)
	return conn
}

// joined has a connection join as a rank.
func joined(t *testing.T, conn net.Conn, o *Options, rank int) {
	t.Helper()
	require.NoError(t, says(conn, o, rank))
	f, err := readFrame(conn)
	require.NoError(t, err)
	require.Equal(t, frameBeat, f.kind, "%s", f.rest)
}

// says has a connection say that it is a rank.
func says(conn net.Conn, o *Options, rank int) error {
	f, err := readFrame(conn)
	if err != nil {
		return err
	}
	server, err := f.greeting()
	if err != nil {
		return err
	}
	j := joining{rank: uint32(rank), size: uint32(o.Size)}
	rand.Read(j.nonce[:])
	j.proof = j.prove(o.Secret, server)
	_, err = conn.Write(j.frame().append(nil))
	return err
}

// files returns how many files this process has open.
func files(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// ended returns whether the other end has closed a connection.
func ended(conn net.Conn) bool {
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		if _, err := readFrame(conn); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// TestMeetStrangers: strangers that connect and say nothing do not keep ranks out, and nothing is left
// of them.
func TestMeetStrangers(t *testing.T) {
	files0, goroutines0 := files(t), runtime.NumGoroutine()
	o := Options{Size: 3, Address: freeAddress(t), Secret: "right"}
	h := hosts(t, o)
	var strangers []net.Conn
	connect := func() {
		for range o.Size + spareConnections {
			c, err := net.Dial("tcp", o.Address)
			require.NoError(t, err)
			strangers = append(strangers, c)
		}
		strangers[0].Close() // makes place by itself
	}
	connect()
	first := joins(t, o, 1)
	connect()
	second := joins(t, o, 2)
	h.welcomeAll(t)
	for _, c := range []net.Conn{first, second} { // no stranger takes the place of a rank
		for f := (frame{kind: frameBeat}); f.kind != frameWelcome; {
			var err error
			f, err = readFrame(c)
			require.NoError(t, err)
		}
		c.Close()
	}
	h.mu.Lock()
	assert.LessOrEqual(t, len(h.strangers), o.Size+spareConnections)
	h.mu.Unlock()
	h.end()
	for _, c := range strangers {
		c.Close()
	}
	assert.Eventually(t, func() bool { return files(t) <= files0 && runtime.NumGoroutine() <= goroutines0+1 }, time.Minute, time.Millisecond) // 1: Eventually's
}

// TestMeetNoFiles: if the process can open no more files, strangers make way.
func TestMeetNoFiles(t *testing.T) {
	o := Options{Size: 2, Secret: "right"}
	l := newPipes()
	h := newHub(newSession(), l, &o)
	t.Cleanup(h.end)
	stranger := l.connect(t)
	l.fails <- errors.New("too many open files")
	assert.True(t, ended(stranger))
	now, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorContains(t, h.wait(now), "ranks that have not come: 1; last refused: rank 0 cannot accept connections: too many open files")
	rank := l.connect(t)
	require.NoError(t, says(rank, &o, 1))
	h.has(t, 1)
}

// TestMeetNotedRefusals: strangers do not hide why a rank was refused.
func TestMeetNotedRefusals(t *testing.T) {
	o := Options{Size: 2, Secret: "right"}
	l := newPipes()
	h := newHub(newSession(), l, &o)
	t.Cleanup(h.end)
	wrong := o
	wrong.Secret = "wrong"
	rank := l.connect(t)
	require.NoError(t, says(rank, &wrong, 1))
	assert.True(t, ended(rank))
	for _, garbage := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
		stranger := l.connect(t)
		_, err := readFrame(stranger)
		require.NoError(t, err)
		_, _ = stranger.Write([]byte(garbage))
		stranger.Close()
	}
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.strangers) == 0
	}, time.Minute, time.Millisecond)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorContains(t, h.wait(now), "last refused: the secret differs from that of rank 0")
}

// TestMeetAgainAfterEviction: a rank tries again if rank 0 has hung up before it took it in.
func TestMeetAgainAfterEviction(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := Options{Size: 2, Rank: 1, Address: l.Addr().String(), Secret: "right"}
	rank := meets(soon(t), o)
	for _, answers := range []bool{false, true} {
		c, err := l.Accept()
		require.NoError(t, err)
		if answers {
			_, err = c.Write(greeting(nonce{}).append(nil))
			require.NoError(t, err)
			_, err = readFrame(c)
			require.NoError(t, err)
		}
		c.Close()
	}
	h := newHub(newSession(), l, &o)
	t.Cleanup(h.end)
	h.welcomeAll(t)
	m := <-rank
	require.NoError(t, m.err)
	leaves(m)
}

// wrongs are what a rank must not say to another one, after it has joined and was welcomed.
func wrongs(about, other int) map[string][]frame {
	var id nccl.NcclUniqueId
	j := joining{rank: uint32(about), size: 3}
	return map[string][]frame{
		"bye twice":          {bye(about), bye(about)},
		"bye of another":     {bye(other)},
		"bye of nobody":      {bye(3)},
		"bye with more":      {{frameBye, append(bye(about).rest, 0)}},
		"bye without a rank": {{kind: frameBye}},
		"lost of another":    {lost(other, "it is not")},
		"lost of nobody":     {lost(1<<31, "")},
		"lost without rank":  {{kind: frameLost}},
		"a beat with more":   {{frameBeat, []byte("x")}},
		"greeting":           {greeting(nonce{})},
		"join":               {j.frame()},
		"refusal":            {refusal("no")},
		"welcome":            {welcome("right", nonce{}, nonce{}, &id)},
		"no frame":           {{kind: 99}},
	}
}

// TestRankSaysWrong: rank 0 hangs up on a rank that says what it must not, and tells the others.
// Before all have joined, the place of the rank is free again.
func TestRankSaysWrong(t *testing.T) {
	o := Options{Size: 3, Address: freeAddress(t), Secret: "right"}
	send := func(c net.Conn, frames []frame) {
		for _, f := range frames {
			_, _ = c.Write(f.append(nil)) // which fails once rank 0 has hung up
		}
	}
	early := wrongs(1, 2)
	early["bye"] = []frame{bye(1)}
	early["lost"] = []frame{lost(1, "on fire")}
	for name, frames := range early {
		t.Run("early/"+name, func(t *testing.T) {
			h := hosts(t, o)
			wrong := joins(t, o, 1)
			send(wrong, frames)
			assert.True(t, ended(wrong))
			h.has(t, 0)
			assert.NoError(t, h.session.usable())
			joins(t, o, 1)
			joins(t, o, 2)
			h.welcomeAll(t)
		})
	}
	late := wrongs(1, 2)
	late["lost twice"] = []frame{lost(1, "on fire"), lost(1, "still")}
	for name, frames := range late {
		t.Run("late/"+name, func(t *testing.T) {
			h := hosts(t, o)
			wrong, other := joins(t, o, 1), joins(t, o, 2)
			h.welcomeAll(t)
			require.Equal(t, frameWelcome, heard(t, other).kind)
			send(wrong, frames)
			assert.True(t, ended(wrong))
			f := heard(t, other)
			rank, _, err := f.about(o.Size)
			require.NoError(t, err)
			assert.Equal(t, 1, rank)
			if name != "bye twice" {
				assert.Equal(t, frameLost, f.kind)
			}
		})
	}
}

// heard returns the next frame that is no beat.
func heard(t *testing.T, c net.Conn) frame {
	t.Helper()
	for {
		f, err := readFrame(c)
		require.NoError(t, err)
		if f.kind != frameBeat {
			return f
		}
	}
}

// TestFarewellFlood: what rank 0 keeps for a rank that does not read has a bound, whatever others say.
func TestFarewellFlood(t *testing.T) {
	o := Options{Size: 4, Secret: "right"}
	l := newPipes()
	h := newHub(newSession(), l, &o)
	t.Cleanup(h.end)
	var ranks []net.Conn
	for rank := 1; rank < o.Size; rank++ {
		ranks = append(ranks, l.connect(t))
		joined(t, ranks[rank-1], &o, rank)
	}
	defer ranks[2].Close() // which reads no more, so that rank 0 cannot write
	h.announce(new(nccl.NcclUniqueId))
	for i, c := range ranks[:2] {
		go io.Copy(io.Discard, c)
		for n := 0; ; n++ {
			f := bye(i + 1)
			if n%2 == 1 {
				f = lost(i+1, "on fire")
			}
			if _, err := c.Write(f.append(nil)); err != nil {
				break
			}
			require.Less(t, n, 10, "rank 0 has hung up")
		}
	}
	slow := h.ranks[3]
	slow.mu.Lock()
	defer slow.mu.Unlock()
	assert.LessOrEqual(t, len(slow.out), 5, "a beat, a welcome, two farewells, a loss")
}

// TestRankZeroSaysWrong: a rank gives rank 0 up if that says what it must not.
func TestRankZeroSaysWrong(t *testing.T) {
	late := wrongs(2, 1)
	for _, fine := range []string{"lost of another", "bye of another"} {
		late["of itself: "+fine] = late[fine]
		delete(late, fine)
	}
	for name, frames := range late {
		t.Run(name, func(t *testing.T) {
			m, server := talks(t, 3)
			go m.listen()
			for _, f := range frames {
				_, _ = server.Write(f.append(nil))
			}
			assert.True(t, ended(server))
			assert.Eventually(t, func() bool { return m.session.failure() != nil }, time.Minute, time.Millisecond)
			var e *PeerError
			require.ErrorAs(t, m.session.failure(), &e)
			assert.Zero(t, e.Rank)
			<-m.alone
		})
	}
}

// talks makes rank 1, and the end of its connection that rank 0 would have.
func talks(t *testing.T, size int) (*member, net.Conn) {
	a, server := net.Pipe()
	t.Cleanup(func() { a.Close(); server.Close() })
	return &member{link: newLink(a, time.Minute), session: newSession(), rank: 1, size: size, alone: make(chan struct{}), left: map[int]bool{}}, server
}

// TestAnswers: what rank 0 may answer to a rank that joins.
func TestAnswers(t *testing.T) {
	var id nccl.NcclUniqueId
	for _, c := range []struct {
		name string
		f    frame
		want error
	}{
		{"welcome", welcome("right", nonce{}, nonce{}, &id), nil},
		{"welcome of another", welcome("wrong", nonce{}, nonce{}, &id), errors.New("rank 0 does not know the secret")},
		{"refusal", refusal("no\n"), errors.New("rank 0 refused: no?")},
		{"rank 0 has failed", lost(0, "on fire"), &PeerError{0, "on fire"}},
		{"another rank is lost", lost(2, "on fire"), &PeerError{2, "on fire"}},
		{"the rank itself is lost", lost(1, "on fire"), errForeign},
		{"nobody is lost", lost(3, "on fire"), errForeign},
		{"lost without a rank", frame{kind: frameLost}, errForeign},
		{"bye", bye(0), errForeign},
		{"greeting", greeting(nonce{}), errForeign},
	} {
		m, _ := talks(t, 3)
		_, err := m.answered("right", c.f)
		assert.Equal(t, c.want, err, c.name)
	}
}

// pipes is a listener of connections within the process.
type pipes struct {
	conns chan net.Conn
	fails chan error
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), fails: make(chan error), done: make(chan struct{})}
}

// connect connects.
func (p *pipes) connect(t testing.TB) net.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close() })
	select {
	case p.conns <- b:
	case <-p.done:
		b.Close()
	}
	return a
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case err := <-p.fails:
		return nil, err
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestFailedJoinsLeaveNothing: no goroutine, connection or listener is left of ranks that do not meet.
func TestFailedJoinsLeaveNothing(t *testing.T) {
	soonEnds := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	o := Options{Size: 3, Address: freeAddress(t), Secret: "right"}
	for name, ranks := range map[string]func() []chan met{
		"no rank comes":      func() []chan met { return []chan met{meets(soonEnds(), o)} },
		"rank 0 never comes": func() []chan met { o := o; o.Rank = 1; return []chan met{meets(soonEnds(), o)} },
		"a rank is missing": func() []chan met {
			one := o
			one.Rank = 1
			return []chan met{meets(soonEnds(), o), meets(soonEnds(), one)}
		},
		"another secret": func() []chan met {
			one := o
			one.Rank, one.Secret = 1, "wrong"
			return []chan met{meets(soonEnds(), o), meets(soonEnds(), one)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			files0, goroutines0 := files(t), runtime.NumGoroutine()
			for range 5 {
				for _, rank := range ranks() {
					assert.Error(t, (<-rank).err)
				}
			}
			assert.Eventually(t, func() bool { return files(t) <= files0 && runtime.NumGoroutine() <= goroutines0+1 }, time.Minute, time.Millisecond)
		})
	}
}

// counted counts farewells.
type counted struct {
	members
	leaves int
}

func (c *counted) leave() { c.leaves++ }
func (c *counted) end()   {}

// TestSessionLeavesOnce: a rank says farewell once, which it may do as it begins to close or at the end.
func TestSessionLeavesOnce(t *testing.T) {
	for _, begins := range []bool{true, false} {
		peers, c := &counted{}, &core{}
		s := newSession()
		s.peers = peers
		require.NoError(t, s.add(c))
		if begins {
			s.leave()
		}
		s.remove(c)
		assert.Equal(t, 1, peers.leaves)
	}
}
