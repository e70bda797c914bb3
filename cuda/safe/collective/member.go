package collective

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
)

// A member is the end of a connection to rank 0 that another rank has.
type member struct {
	*link
	session *session
	rank    int
	size    int
	once    sync.Once
	alone   chan struct{} // closed when nothing can be heard of the others any more

	mu    sync.Mutex
	left  map[int]bool // ranks that ended in order
	ended bool
}

// dial connects with rank 0, which may not have started yet, and joins it.
func dial(ctx context.Context, s *session, o *Options) (*member, nccl.NcclUniqueId, error) {
	var last error
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		m, id, again, err := attempt(ctx, s, o)
		if err == nil || !again {
			return m, id, err
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			if last == nil {
				last = err
			}
			return nil, id, fmt.Errorf("%w; rank 0 at %s was not reached: %w", context.Cause(ctx), o.Address, last)
		case <-time.After(pause):
		}
	}
}

// attempt tries to join once. again says whether it makes sense to try again.
func attempt(ctx context.Context, s *session, o *Options) (m *member, id nccl.NcclUniqueId, again bool, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, id, true, err
	}
	l := newLink(conn, o.timeout())
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	defer context.AfterFunc(ctx, l.close)()
	conn.SetReadDeadline(time.Now().Add(handshakeLimit))
	f, err := readFrame(conn)
	if err != nil {
		return nil, id, !errors.Is(err, errForeign), err
	}
	server, err := f.greeting()
	if err != nil {
		return nil, id, false, fmt.Errorf("%s: %w", o.Address, err)
	}
	j := joining{rank: uint32(o.Rank), size: uint32(o.Size)}
	rand.Read(j.nonce[:])
	j.proof = j.prove(o.Secret, server)
	if err := l.put(j.frame()); err != nil {
		return nil, id, true, err
	}
	go l.write()
	if f, err = l.read(); err != nil {
		if ctx.Err() != nil {
			return nil, id, false, fmt.Errorf("%w; rank 0 waits for other ranks", context.Cause(ctx))
		}
		return nil, id, false, &PeerError{0, l.ended(err)}
	}
	switch f.kind {
	case frameWelcome:
		id, err = f.welcome(o.Secret, server, j.nonce)
	case frameRefusal:
		err = errors.New("rank 0 refused: " + printable(f.rest))
	case frameLost:
		_, reason, _ := f.about(o.Size)
		err = &PeerError{0, reason}
	default:
		err = errForeign
	}
	if err != nil {
		return nil, id, false, err
	}
	m = &member{link: l, session: s, rank: o.Rank, size: o.Size, alone: make(chan struct{}), left: map[int]bool{}}
	return m, id, false, nil
}

// listen handles what rank 0 says, to the end of the connection.
func (m *member) listen() {
	for {
		f, err := m.read()
		if err == nil {
			err = m.heard(f)
		}
		if err == nil {
			continue
		}
		m.close()
		m.once.Do(func() { close(m.alone) })
		m.mu.Lock()
		expected := m.ended || m.left[0]
		m.mu.Unlock()
		if !expected {
			m.session.lose(&PeerError{0, m.link.ended(err)})
		}
		return
	}
}

func (m *member) heard(f frame) error {
	rank, reason, err := f.about(m.size)
	if err != nil {
		return err
	}
	switch f.kind {
	case frameLost:
		m.session.lose(&PeerError{rank, reason})
	case frameBye:
		m.session.goes(rank)
		m.mu.Lock()
		m.left[rank] = true
		all := len(m.left) == m.size-1
		m.mu.Unlock()
		if all {
			m.once.Do(func() { close(m.alone) })
		}
	default:
		return errForeign
	}
	return nil
}

// fail implements members.
func (m *member) fail(cause error) { m.post(lost(m.rank, "it has failed: "+cause.Error())) }

// leave implements members.
func (m *member) leave() { m.post(bye(m.rank)) }

// deserted implements members.
func (m *member) deserted() <-chan struct{} { return m.alone }

// end implements members.
func (m *member) end() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.finish()
	<-m.closed
}
