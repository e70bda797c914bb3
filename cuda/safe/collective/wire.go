package collective

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
)

// The ranks of a Join talk to rank 0 in frames: a kind, the length of the rest in two bytes,
// the rest. Numbers are big-endian.
//
//	rank 0                      another rank
//	greeting(version, nonce) ->
//	                         <- join(version, nonce, rank, size, proof)
//	refusal(text)            ->                      or, when all ranks have joined,
//	welcome(id, proof)       ->
//	beat                     <->                     every beatInterval from join on, the first at once
//	bye(rank)                <->                     the rank ends in order
//	lost(rank, reason)       <->                     the rank has failed
//
// A rank says bye and lost at most once each, about itself, and after the welcome. It learns by
// the first beat that it has joined: until then it may connect again.
const (
	frameGreeting byte = iota + 1
	frameJoin
	frameRefusal
	frameWelcome
	frameBeat
	frameBye
	frameLost
)

const (
	magic       = "cudabind"
	wireVersion = 1
	maxFrame    = 1024
	nonceSize   = 32
	proofSize   = sha256.Size
	idSize      = len(nccl.NcclUniqueId{}.Internal)
)

type nonce [nonceSize]byte
type proof [proofSize]byte

// errForeign is returned for what no rank of this package has sent.
var errForeign = errors.New("what answers is not a rank of package collective")

type frame struct {
	kind byte
	rest []byte
}

// append appends the frame to b.
func (f frame) append(b []byte) []byte {
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.rest)))
	return append(b, f.rest...)
}

// readFrame reads one frame. It reads no more than that, and at most maxFrame bytes.
func readFrame(r io.Reader) (frame, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint16(head[1:])
	if head[0] < frameGreeting || head[0] > frameLost || n > maxFrame || head[0] == frameBeat && n > 0 {
		return frame{}, errForeign
	}
	f := frame{head[0], make([]byte, n)}
	_, err := io.ReadFull(r, f.rest)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return f, err
}

// begins checks the beginning of a greeting or a join, and returns what follows it.
func (f frame) begins(kind byte, size int) ([]byte, error) {
	rest, ok := strings.CutPrefix(string(f.rest), magic)
	if f.kind != kind || !ok || len(rest) < 2 {
		return nil, errForeign
	}
	if v := binary.BigEndian.Uint16([]byte(rest)); v != wireVersion {
		return nil, fmt.Errorf("the other rank speaks version %d, this one %d: build all from the same version of the module", v, wireVersion)
	}
	if len(rest) != 2+size {
		return nil, errForeign
	}
	return []byte(rest[2:]), nil
}

func opening(kind byte) frame {
	return frame{kind, binary.BigEndian.AppendUint16([]byte(magic), wireVersion)}
}

func greeting(n nonce) frame {
	f := opening(frameGreeting)
	f.rest = append(f.rest, n[:]...)
	return f
}

func (f frame) greeting() (n nonce, err error) {
	rest, err := f.begins(frameGreeting, nonceSize)
	copy(n[:], rest)
	return n, err
}

// joining is what a rank says of itself.
type joining struct {
	nonce      nonce
	rank, size uint32
	proof      proof
}

func (j *joining) frame() frame {
	f := opening(frameJoin)
	f.rest = append(f.rest, j.nonce[:]...)
	f.rest = binary.BigEndian.AppendUint32(f.rest, j.rank)
	f.rest = binary.BigEndian.AppendUint32(f.rest, j.size)
	f.rest = append(f.rest, j.proof[:]...)
	return f
}

func (f frame) joining() (j joining, err error) {
	rest, err := f.begins(frameJoin, nonceSize+8+proofSize)
	if err != nil {
		return j, err
	}
	rest = rest[copy(j.nonce[:], rest):]
	j.rank, j.size = binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
	copy(j.proof[:], rest[8:])
	return j, nil
}

// prove computes the proof that this rank knows the secret: for one connection, which the
// nonces of both ends stand for, and for what it says.
func prove(secret, label string, server, client nonce, says ...[]byte) (p proof) {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(magic + label))
	h.Write(server[:])
	h.Write(client[:])
	for _, b := range says {
		h.Write(b)
	}
	h.Sum(p[:0])
	return p
}

// prove computes the proof of a joining rank.
func (j *joining) prove(secret string, server nonce) proof {
	says := binary.BigEndian.AppendUint32(nil, j.rank)
	return prove(secret, "join", server, j.nonce, binary.BigEndian.AppendUint32(says, j.size))
}

func welcome(secret string, server, client nonce, id *nccl.NcclUniqueId) frame {
	p := prove(secret, "welcome", server, client, id.Internal[:])
	return frame{frameWelcome, append(id.Internal[:], p[:]...)}
}

func (f frame) welcome(secret string, server, client nonce) (id nccl.NcclUniqueId, err error) {
	if f.kind != frameWelcome || len(f.rest) != idSize+proofSize {
		return id, errForeign
	}
	rest := f.rest[copy(id.Internal[:], f.rest):]
	if want := prove(secret, "welcome", server, client, id.Internal[:]); !hmac.Equal(want[:], rest) {
		return id, errors.New("rank 0 does not know the secret")
	}
	return id, nil
}

func bye(rank int) frame { return frame{frameBye, binary.BigEndian.AppendUint32(nil, uint32(rank))} }

func lost(rank int, reason string) frame {
	const most = maxFrame - 4
	if len(reason) > most {
		reason = reason[:most-3] + "..."
	}
	return frame{frameLost, append(binary.BigEndian.AppendUint32(nil, uint32(rank)), reason...)}
}

// about returns the rank that a bye or lost is about, and the reason.
func (f frame) about(size int) (rank int, reason string, err error) {
	switch {
	case f.kind != frameBye && f.kind != frameLost,
		len(f.rest) < 4, f.kind == frameBye && len(f.rest) > 4,
		binary.BigEndian.Uint32(f.rest) >= uint32(size):
		return 0, "", errForeign
	}
	return int(binary.BigEndian.Uint32(f.rest)), printable(f.rest[4:]), nil
}

func refusal(reason string) frame {
	f := lost(0, reason)
	return frame{frameRefusal, f.rest[4:]}
}

// printable makes text of another process safe to print.
func printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(text), "?"))
}
