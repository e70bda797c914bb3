//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Whole conversations with whoever: frames in any order, from before and after the handshake, closes
// at any time, ends that do not read.

package collective

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is how long an end waits for one that does not read.
const patience = 5 * time.Millisecond

// A step is one thing that happens in a conversation, with a number that says more.
type step struct{ kind, more byte }

// steps makes the steps of a conversation, few enough to be fast.
func steps(in []byte) (all []step) {
	for i := 0; i+1 < len(in) && len(all) < 60; i += 2 {
		all = append(all, step{in[i], in[i+1]})
	}
	return all
}

// saying is what an end may say at any time, right or wrong.
func saying(kind, more byte, o *Options, server nonce) []byte {
	var id nccl.NcclUniqueId
	j := joining{rank: uint32(more % 5), size: uint32(o.Size)}
	if more >= 240 {
		j.size = uint32(more)
	}
	secret := o.Secret
	if more >= 200 {
		secret = "wrong"
	}
	j.proof = j.prove(secret, server)
	var f frame
	switch kind % 9 {
	case 0:
		f = j.frame()
	case 1:
		f = bye(int(more % 5))
	case 2:
		f = lost(int(more%5), "on fire")
	case 3:
		f = greeting(nonce{more})
	case 4:
		f = refusal("no")
	case 5:
		f = welcome(secret, server, j.nonce, &id)
	case 6:
		f = frame{kind: frameBeat, rest: make([]byte, more/64)}
	case 7:
		f = frame{kind: more % 10, rest: make([]byte, more)}
	default:
		return []byte{frameBye, 0, more, 0}
	}
	return f.append(nil)
}

// caller is an end of a connection to rank 0.
type caller struct {
	net.Conn
	server nonce
}

// FuzzRankZero has anyone talk with rank 0. In the end, the ranks that are missing can join as
// long as rank 0 waits for them, what it keeps is bounded, and it ends.
func FuzzRankZero(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 1, 3, 2, 1, 0, 2, 9})
	f.Add([]byte{0, 1, 2, 201, 0, 0, 2, 241, 0, 0, 1, 0, 1, 1})
	all := []byte{0, 0, 2, 1, 0, 0, 14, 2, 0, 1, 26, 3, 11, 0} // all have joined, and rank 3 does not read
	f.Add(all)
	f.Add(append(all, bytes.Repeat([]byte{3, 1, 15, 2, 4, 1}, 10)...)) // ranks 1 and 2 say bye and lost
	f.Fuzz(func(t *testing.T, in []byte) {
		o := Options{Size: 4, Secret: "right"}
		l := newPipes()
		h := newHub(newSession(), l, &o)
		var callers []*caller
		own := 0 // that this rank says
		for _, s := range steps(in) {
			switch {
			case s.kind%12 == 0 || len(callers) == 0:
				callers = append(callers, calls(t, l, s.more%4 != 1))
			case s.kind%12 == 1:
				callers[int(s.more)%len(callers)].Close()
			case s.kind == 2*12+11:
				h.leave()
				own++
			case s.kind == 3*12+11:
				h.fail(errors.New("on fire"))
				own++
			case s.kind%12 == 11:
				announced(h)
			default:
				c := callers[int(s.kind/12)%len(callers)]
				c.SetWriteDeadline(time.Now().Add(patience))
				_, _ = c.Write(saying(s.kind%12-2, s.more, &o, c.server))
			}
		}
		bounded(t, h, own)
		completes(t, h, l, &o)
		for _, c := range callers {
			c.Close()
		}
		announced(h)
		ends(t, h.end)
	})
}

// calls connects with rank 0, and learns the greeting.
func calls(t *testing.T, l *pipes, reads bool) *caller {
	c := &caller{Conn: l.connect(t)}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if f, err := readFrame(c); err == nil {
		c.server, _ = f.greeting()
	}
	if reads {
		go io.Copy(io.Discard, c)
	}
	return c
}

// announced announces an identifier if all ranks have joined, as Join does once.
func announced(h *hub) {
	h.mu.Lock()
	all := h.complete() && !h.welcomed
	h.mu.Unlock()
	if all {
		h.announce(new(nccl.NcclUniqueId))
	}
}

// bounded checks what rank 0 keeps.
func bounded(t *testing.T, h *hub, own int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.LessOrEqual(t, len(h.strangers), h.size+spareConnections)
	joined := 0
	for _, s := range h.ranks {
		if s == nil {
			continue
		}
		joined++
		s.mu.Lock()
		assert.LessOrEqual(t, len(s.out), own+h.size+1, "a beat, a welcome, a farewell of each other rank, a loss")
		s.mu.Unlock()
	}
	assert.Equal(t, h.joined, joined)
}

// completes has the missing ranks join.
func completes(t *testing.T, h *hub, l *pipes, o *Options) {
	require.Eventually(t, func() bool { // what callers have sent may still arrive, and take a place
		h.mu.Lock()
		ranks, complete := slices.Clone(h.ranks), h.complete()
		h.mu.Unlock()
		for rank := 1; rank < o.Size && !complete; rank++ {
			if ranks[rank] == nil {
				c := l.connect(t)
				_ = says(c, o, rank)
				go io.Copy(io.Discard, c)
			}
		}
		return complete
	}, time.Minute, time.Millisecond)
}

// ends checks that f ends.
func ends(t *testing.T, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.Fail(t, "it does not end")
	}
}

// FuzzRank has rank 0 say anything to another rank, before and after a handshake that is right.
func FuzzRank(f *testing.F) {
	f.Add([]byte{0, 0, 3, 1, 6, 0, 5, 0, 1, 0, 2, 2, 1, 2})
	f.Add([]byte{1, 1, 6, 0, 1, 0, 1, 2, 1, 3, 2, 0})
	f.Add([]byte{1, 1, 1, 0, 1, 0})
	f.Add([]byte{0, 0, 3, 1, 4, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		o := Options{Size: 4, Rank: 1, Secret: "right"}
		m, server := talks(t, o.Size)
		end := make(chan error, 1)
		go func() { end <- speaks(m, o.Secret) }()
		all := steps(in)
		welcomed := len(all) > 0 && all[0].kind%2 == 1
		if welcomed {
			welcomes(t, server, &o)
		}
		told := make(chan struct{})
		go func() {
			defer close(told)
			_, _ = io.Copy(io.Discard, server)
		}()
		for _, s := range all {
			server.SetWriteDeadline(time.Now().Add(patience))
			if _, err := server.Write(saying(s.kind, s.more, &o, nonce{})); err != nil {
				break
			}
		}
		server.Close()
		ends(t, func() {
			assert.Equal(t, welcomed, <-end == nil, "only who knows the secret is rank 0")
			<-told
			<-m.closed
		})
		assert.LessOrEqual(t, len(m.left), o.Size-1)
		assert.NotContains(t, m.left, o.Rank)
	})
}

// speaks joins as attempt does, and listens.
func speaks(m *member, secret string) error {
	defer m.close()
	f, _, err := m.introduce(secret)
	if err == nil && f.kind == frameBeat {
		f, err = m.read()
	}
	if err == nil {
		_, err = m.answered(secret, f)
	}
	if err == nil {
		m.listen()
	}
	return err
}

// welcomes is rank 0's part of the handshake.
func welcomes(t *testing.T, server net.Conn, o *Options) {
	var n nonce
	_, err := server.Write(greeting(n).append(nil))
	require.NoError(t, err)
	f, err := readFrame(server)
	require.NoError(t, err)
	j, err := f.joining()
	require.NoError(t, err)
	require.Equal(t, j.prove(o.Secret, n), j.proof)
	_, err = server.Write(welcome(o.Secret, n, j.nonce, new(nccl.NcclUniqueId)).append(frame{kind: frameBeat}.append(nil)))
	require.NoError(t, err)
}
