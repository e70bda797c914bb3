package collective

import (
	"bytes"
	"crypto/rand"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sent returns what arrives of a frame.
func sent(t *testing.T, f frame) frame {
	t.Helper()
	r := bytes.NewReader(f.append(nil))
	got, err := readFrame(r)
	require.NoError(t, err)
	assert.Zero(t, r.Len())
	return got
}

func TestFrames(t *testing.T) {
	var server nonce
	rand.Read(server[:])
	got, err := sent(t, greeting(server)).greeting()
	require.NoError(t, err)
	assert.Equal(t, server, got)

	j := joining{rank: 3, size: 1000}
	rand.Read(j.nonce[:])
	j.proof = j.prove("secret", server)
	gotJoin, err := sent(t, j.frame()).joining()
	require.NoError(t, err)
	assert.Equal(t, j, gotJoin)
	assert.Equal(t, j.proof, gotJoin.prove("secret", server))
	assert.NotEqual(t, j.proof, gotJoin.prove("Secret", server))
	gotJoin.rank = 4
	assert.NotEqual(t, j.proof, gotJoin.prove("secret", server), "the proof is for one rank")
	assert.NotEqual(t, j.proof, j.prove("secret", j.nonce), "the proof is for one connection")
	assert.NotContains(t, string(j.frame().rest), "secret")

	var id nccl.NcclUniqueId
	rand.Read(id.Internal[:])
	w := sent(t, welcome("secret", server, j.nonce, &id))
	gotID, err := w.welcome("secret", server, j.nonce)
	require.NoError(t, err)
	assert.Equal(t, id, gotID)
	w.rest[0]++
	_, err = w.welcome("secret", server, j.nonce)
	assert.ErrorContains(t, err, "rank 0 does not know the secret")

	rank, _, err := sent(t, bye(7)).about(8)
	require.NoError(t, err)
	assert.Equal(t, 7, rank)
	_, _, err = bye(7).about(7)
	assert.Equal(t, errForeign, err)
	rank, reason, err := sent(t, lost(0, "so\x1b[1m")).about(1)
	require.NoError(t, err)
	assert.Zero(t, rank)
	assert.Equal(t, "so?[1m", reason)
	_, reason, err = sent(t, lost(0, "so\u009b1m \u202ered, 4 µs")).about(1)
	require.NoError(t, err)
	assert.Equal(t, "so?1m ?red, 4 µs", reason, "also what terminals obey beyond ASCII")
	_, reason, err = sent(t, lost(0, strings.Repeat("x", 5000))).about(1)
	require.NoError(t, err)
	assert.Len(t, reason, maxFrame-4)
}

func TestFramesRefused(t *testing.T) {
	good := greeting(nonce{}).append(nil)
	version := bytes.Clone(good)
	version[3+len(magic)+1]++
	for name, c := range map[string]struct {
		bytes []byte
		says  string
	}{
		"HTTP":          {[]byte("GET / HTTP/1.1\r\n\r\n"), errForeign.Error()},
		"nothing":       {nil, "EOF"},
		"half a head":   {good[:2], "unexpected EOF"},
		"half a frame":  {good[:20], "unexpected EOF"},
		"no rest":       {good[:3], "unexpected EOF"},
		"too long":      {[]byte{frameGreeting, 255, 255}, errForeign.Error()},
		"unknown":       {[]byte{99, 0, 0}, errForeign.Error()},
		"another":       {bye(1).append(nil), errForeign.Error()},
		"not ours":      {frame{frameGreeting, []byte("someone else's greeting, of some length")}.append(nil), errForeign.Error()},
		"another size":  {frame{frameGreeting, good[3 : len(good)-1]}.append(nil), errForeign.Error()},
		"newer version": {version, "the other rank speaks version 2, this one 1: build all from the same version"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := readFrame(bytes.NewReader(c.bytes))
			if err == nil {
				_, err = f.greeting()
			}
			assert.ErrorContains(t, err, c.says)
		})
	}
}

// TestFrameKinds: a frame is understood as what it says it is, and as nothing else, and only in its length.
func TestFrameKinds(t *testing.T) {
	var id nccl.NcclUniqueId
	j := joining{rank: 1, size: 2}
	understood := map[byte]func(f frame) error{
		frameGreeting: func(f frame) error { _, err := f.greeting(); return err },
		frameJoin:     func(f frame) error { _, err := f.joining(); return err },
		frameWelcome:  func(f frame) error { _, err := f.welcome("", nonce{}, nonce{}); return err },
		frameBye:      func(f frame) error { _, _, err := f.about(4); return err },
		frameLost:     func(f frame) error { _, _, err := f.about(4); return err },
	}
	for _, good := range []frame{greeting(nonce{}), j.frame(), welcome("", nonce{}, nonce{}, &id), bye(3), lost(3, "")} {
		require.NoError(t, understood[good.kind](good))
		for kind := range frameLost + 2 {
			alike := kind == good.kind || good.kind >= frameBye && kind >= frameBye && kind <= frameLost
			if err := understood[good.kind](frame{kind, good.rest}); !alike {
				assert.Equal(t, errForeign, err, "%d as %d", kind, good.kind)
			}
		}
		assert.Equal(t, errForeign, understood[good.kind](frame{good.kind, good.rest[:len(good.rest)-1]}), good.kind)
		if good.kind != frameLost {
			assert.Equal(t, errForeign, understood[good.kind](frame{good.kind, append(good.rest, 0)}), good.kind)
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		defer b.Close()
		_, _ = b.Write(append(frame{kind: frameBeat}.append(nil), frame{frameBeat, []byte("x")}.append(nil)...))
	}()
	_, err := newLink(a, time.Minute).read()
	assert.Equal(t, errForeign, err, "a beat says nothing else")
}

// FuzzFrames: whatever arrives is refused or understood, and an understood frame is sent the
// same way.
func FuzzFrames(f *testing.F) {
	var id nccl.NcclUniqueId
	j := joining{rank: 1, size: 2}
	for _, seed := range []frame{greeting(nonce{1}), j.frame(), refusal("no"), welcome("", nonce{}, nonce{}, &id), {kind: frameBeat}, bye(3), lost(2, "gone")} {
		f.Add(seed.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		got, err := readFrame(r)
		if err != nil {
			return
		}
		n := len(b) - r.Len()
		assert.Equal(t, b[:n], got.append(nil))
		assert.LessOrEqual(t, n, maxFrame+3)
		if v, err := got.greeting(); err == nil {
			assert.Equal(t, b[:n], greeting(v).append(nil))
		}
		if v, err := got.joining(); err == nil {
			assert.Equal(t, b[:n], v.frame().append(nil))
		}
		if _, err := got.welcome("", nonce{}, nonce{}); err == nil {
			assert.Equal(t, frameWelcome, got.kind)
		}
		if rank, reason, err := got.about(4); err == nil {
			assert.Less(t, rank, 4)
			assert.LessOrEqual(t, len(reason), n-7)
			if got.kind == frameBye {
				assert.Equal(t, b[:n], bye(rank).append(nil))
			}
		}
	})
}
