package collective

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
)

// handshakeLimit is how long a connection may take to say who it is.
const handshakeLimit = 10 * time.Second

// spareConnections is how many connections may be undecided, beside those of ranks.
const spareConnections = 64

// A hub is rank 0's end of the connections to all other ranks. What one rank says, it tells
// the others.
type hub struct {
	session *session
	secret  string
	size    int
	timeout time.Duration
	server  net.Listener

	mu      sync.Mutex
	ranks   []*spoke // by rank; nil for rank 0 and those that have not joined
	joined  int
	refused error // the latest
	open    int   // connections
	left    int   // ranks that ended in order
	isOver  bool
	all     chan struct{} // closed when all have joined
	alone   chan struct{} // closed when all others have ended
}

// A spoke is the connection to one rank.
type spoke struct {
	*link
	server, client nonce
	left           bool
}

func newHub(s *session, l net.Listener, o *Options) *hub {
	h := &hub{
		session: s, secret: o.Secret, size: o.Size, timeout: o.timeout(), server: l,
		ranks: make([]*spoke, o.Size), all: make(chan struct{}), alone: make(chan struct{}),
	}
	go h.accept()
	return h
}

// accept accepts connections until the listener is closed.
func (h *hub) accept() {
	for {
		conn, err := h.server.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(10 * time.Millisecond) // as when the process has no file left
			continue
		}
		h.mu.Lock()
		full := h.open >= h.size+spareConnections
		if !full {
			h.open++
		}
		h.mu.Unlock()
		if full {
			conn.Close()
			continue
		}
		go h.serve(newLink(conn, h.timeout))
	}
}

// serve serves one connection to its end.
func (h *hub) serve(l *link) {
	defer func() {
		l.close()
		h.mu.Lock()
		h.open--
		h.mu.Unlock()
	}()
	rank, s, err := h.meet(l)
	if err != nil {
		h.mu.Lock()
		h.refused = err
		h.mu.Unlock()
		_ = l.put(refusal(err.Error()))
		return
	}
	go l.write()
	for {
		f, err := l.read()
		if err == nil {
			err = h.heard(rank, s, f)
		}
		if err != nil {
			h.gone(rank, s, err)
			return
		}
	}
}

// meet finds out who has connected, and takes it in.
func (h *hub) meet(l *link) (int, *spoke, error) {
	s := &spoke{link: l}
	rand.Read(s.server[:])
	if err := l.put(greeting(s.server)); err != nil {
		return 0, nil, err
	}
	l.conn.SetReadDeadline(time.Now().Add(handshakeLimit))
	f, err := readFrame(l.conn)
	if err != nil {
		return 0, nil, err
	}
	j, err := f.joining()
	if err != nil {
		return 0, nil, err
	}
	s.client = j.nonce
	if want := j.prove(h.secret, s.server); !hmac.Equal(want[:], j.proof[:]) {
		return 0, nil, errors.New("the secret differs from that of rank 0")
	}
	switch {
	case int64(j.size) != int64(h.size):
		return 0, nil, fmt.Errorf("rank %d was started with size %d, rank 0 with size %d", j.rank, j.size, h.size)
	case j.rank == 0 || int64(j.rank) >= int64(h.size):
		return 0, nil, fmt.Errorf("rank %d of %d is not one that can join rank 0", j.rank, h.size)
	}
	return int(j.rank), s, h.join(int(j.rank), s)
}

// join takes in a rank. The last one completes the communicator: see welcome.
func (h *hub) join(rank int, s *spoke) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.isOver:
		return errors.New("rank 0 does not wait any more")
	case h.ranks[rank] != nil:
		return fmt.Errorf("rank %d has joined already: two processes have the same rank", rank)
	}
	h.ranks[rank] = s
	if h.joined++; h.joined < h.size-1 {
		return nil
	}
	h.server.Close()
	close(h.all)
	return nil
}

// welcome makes the identifier and tells it to the ranks, which have all joined. It fails if one was lost since.
func (h *hub) welcome() (id nccl.NcclUniqueId, err error) {
	if err := h.session.usable(); err != nil {
		return id, err
	}
	if id, err = newID(); err != nil {
		return id, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.ranks[1:] {
		s.post(welcome(h.secret, s.server, s.client, &id))
	}
	return id, nil
}

// complete returns whether all ranks have joined. mu is held.
func (h *hub) complete() bool { return h.joined == h.size-1 }

// heard handles a frame of a rank.
func (h *hub) heard(rank int, s *spoke, f frame) error {
	about, reason, err := f.about(h.size)
	if err != nil || about != rank {
		return errForeign
	}
	switch f.kind {
	case frameLost:
		h.lost(rank, reason)
	case frameBye:
		h.mu.Lock()
		if !s.left {
			s.left = true
			if h.left++; h.left == h.size-1 {
				close(h.alone)
			}
		}
		h.mu.Unlock()
		h.session.goes(rank)
		h.tell(f, rank)
	default:
		return errForeign
	}
	return nil
}

// gone handles the end of a rank's connection.
func (h *hub) gone(rank int, s *spoke, err error) {
	h.mu.Lock()
	if h.isOver || s.left {
		h.mu.Unlock()
		return
	}
	if !h.complete() { // another process may take its place
		h.ranks[rank] = nil
		h.joined--
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	h.lost(rank, s.ended(err))
}

// lost fails everything because of a rank.
func (h *hub) lost(rank int, reason string) {
	h.session.end(&PeerError{rank, reason}, func() { h.tell(lost(rank, reason), rank) })
}

// tell sends a frame to all ranks but one.
func (h *hub) tell(f frame, but int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for rank, s := range h.ranks {
		if s != nil && rank != but {
			s.post(f)
		}
	}
}

// wait waits until all ranks have joined.
func (h *hub) wait(ctx context.Context) error {
	select {
	case <-h.all:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.complete() {
		return nil
	}
	text := "ranks that have not come:"
	for rank, s := range h.ranks[1:] {
		if s == nil {
			text += fmt.Sprintf(" %d", rank+1)
		}
		if len(text) > 200 {
			text += " ..."
			break
		}
	}
	if h.refused != nil {
		text += "; last refused: " + printable([]byte(h.refused.Error()))
	}
	return fmt.Errorf("%w; %s", context.Cause(ctx), text)
}

// fail implements members.
func (h *hub) fail(cause error) { h.tell(lost(0, "it has failed: "+cause.Error()), 0) }

// leave implements members.
func (h *hub) leave() { h.tell(bye(0), 0) }

// deserted implements members.
func (h *hub) deserted() <-chan struct{} { return h.alone }

// end implements members.
func (h *hub) end() {
	h.mu.Lock()
	h.isOver = true
	ranks := h.ranks
	h.mu.Unlock()
	h.server.Close()
	for _, s := range ranks {
		if s != nil {
			s.finish()
		}
	}
	for _, s := range ranks {
		if s != nil {
			<-s.closed
		}
	}
}
