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
	session        *session
	rank           int
	size           int
	server, client nonce
	once           sync.Once
	alone          chan struct{} // closed when nothing can be heard of the others any more

	mu    sync.Mutex   // a leaf: guards left and ended
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
	m = &member{link: l, session: s, rank: o.Rank, size: o.Size, alone: make(chan struct{}), left: map[int]bool{}}
	f, again, err := m.introduce(o.Secret)
	if err != nil {
		return nil, id, again, err
	}
	if f.kind == frameBeat { // it has joined
		if f, err = m.read(); err != nil {
			if ctx.Err() != nil {
				return nil, id, false, fmt.Errorf("%w; rank 0 waits for other ranks", context.Cause(ctx))
			}
			return nil, id, false, &PeerError{0, l.ended(err)}
		}
	}
	id, err = m.answered(o.Secret, f)
	return m, id, false, err
}

// introduce tells rank 0 who this is, and returns what it answers. If the connection ends first, rank 0
// had no place for it yet: again is true.
func (m *member) introduce(secret string) (f frame, again bool, err error) {
	m.conn.SetReadDeadline(time.Now().Add(handshakeLimit))
	f, err = readFrame(m.conn)
	if err != nil {
		return f, !errors.Is(err, errForeign), err
	}
	if m.server, err = f.greeting(); err != nil {
		return f, false, err
	}
	j := joining{rank: uint32(m.rank), size: uint32(m.size)}
	rand.Read(j.nonce[:])
	m.client, j.proof = j.nonce, j.prove(secret, m.server)
	if err := m.put(j.frame()); err != nil {
		return f, true, err
	}
	go m.write()
	m.conn.SetReadDeadline(time.Now().Add(m.timeout))
	f, err = readFrame(m.conn)
	return f, !errors.Is(err, errForeign), err
}

// answered returns the identifier if f is the welcome, or else an error that says what f is.
func (m *member) answered(secret string, f frame) (id nccl.NcclUniqueId, err error) {
	switch f.kind {
	case frameWelcome:
		return f.welcome(secret, m.server, m.client)
	case frameRefusal:
		return id, errors.New("rank 0 refused: " + printable(f.rest))
	case frameLost:
		rank, reason, err := f.about(m.size)
		if err != nil || rank == m.rank {
			return id, errForeign
		}
		return id, &PeerError{rank, reason}
	}
	return id, errForeign
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

// heard handles a frame of rank 0, which speaks for all others.
func (m *member) heard(f frame) error {
	rank, reason, err := f.about(m.size)
	if err != nil || rank == m.rank {
		return errForeign
	}
	switch f.kind {
	case frameLost:
		m.session.lose(&PeerError{rank, reason})
	case frameBye:
		m.session.goes(rank)
		m.mu.Lock()
		again := m.left[rank]
		m.left[rank] = true
		all := len(m.left) == m.size-1
		m.mu.Unlock()
		if again {
			return errForeign
		}
		if all {
			m.once.Do(func() { close(m.alone) })
		}
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
