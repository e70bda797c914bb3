package collective

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
)

// Whoever connects has not said who it is at first, and may never: rank 0 does not keep places of
// ranks for it.
const (
	handshakeLimit   = 5 * time.Second        // how long a connection may take to say who it is
	handshakeLeast   = 250 * time.Millisecond // how long it has if others wait for its place
	spareConnections = 256                    // how many such connections there are at once, beside one for each rank
)

// A hub is rank 0's end of the connections to all other ranks. What one rank says, it tells
// the others.
type hub struct {
	session *session
	secret  string
	size    int
	timeout time.Duration
	server  net.Listener

	mu        sync.Mutex // guards the fields below
	strangers []*link    // that have not said who they are, the oldest first
	ranks     []*spoke   // by rank; nil for rank 0 and those that have not joined
	joined    int
	welcomed  bool  // all ranks know the identifier
	refused   error // the latest
	left      int   // ranks that ended in order
	isOver    bool
	all       chan struct{} // closed when all have joined
	alone     chan struct{} // closed when all others have ended
}

// A spoke is the connection to one rank.
type spoke struct {
	*link
	server, client nonce
	left, failed   bool // as it has said
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
		case err != nil: // as when the process has no file left
			h.note(fmt.Errorf("rank 0 cannot accept connections: %w", err))
			h.evict(0)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		h.evict(h.size + spareConnections - 1)
		l := newLink(conn, h.timeout)
		h.mu.Lock()
		if h.isOver {
			l.close()
		}
		h.strangers = append(h.strangers, l)
		h.mu.Unlock()
		go h.serve(l)
	}
}

// evict closes the oldest stranger if there are more than most. It waits until that one has had
// handshakeLeast: so a rank gets in, however many strangers come.
func (h *hub) evict(most int) {
	h.mu.Lock()
	if len(h.strangers) <= most {
		h.mu.Unlock()
		return
	}
	oldest := h.strangers[0]
	h.mu.Unlock()
	select {
	case <-oldest.closed:
	case <-time.After(time.Until(oldest.since.Add(handshakeLeast))):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.strangers) > most && h.remove(oldest) {
		oldest.close()
	}
}

// remove returns whether l was a stranger until now. mu is held.
func (h *hub) remove(l *link) bool {
	i := slices.Index(h.strangers, l)
	if i < 0 {
		return false
	}
	h.strangers = slices.Delete(h.strangers, i, i+1)
	return true
}

// note notes why a connection was refused, for wait.
func (h *hub) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = err
}

// serve serves one connection to its end.
func (h *hub) serve(l *link) {
	defer func() {
		l.close()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.remove(l)
	}()
	s := &spoke{link: l}
	f, err := s.greet()
	if err != nil {
		return // whoever it is speaks another language, or nothing
	}
	rank, err := h.meet(s, f)
	if err != nil {
		h.note(err)
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

// greet sends a greeting and returns the answer.
func (s *spoke) greet() (frame, error) {
	rand.Read(s.server[:])
	if err := s.put(greeting(s.server)); err != nil {
		return frame{}, err
	}
	s.conn.SetReadDeadline(s.since.Add(handshakeLimit))
	return readFrame(s.conn)
}

// meet finds out who has answered, and takes it in.
func (h *hub) meet(s *spoke, f frame) (int, error) {
	j, err := f.joining()
	if err != nil {
		return 0, err
	}
	s.client = j.nonce
	if want := j.prove(h.secret, s.server); !hmac.Equal(want[:], j.proof[:]) {
		return 0, errors.New("the secret differs from that of rank 0")
	}
	switch {
	case int64(j.size) != int64(h.size):
		return 0, fmt.Errorf("rank %d was started with size %d, rank 0 with size %d", j.rank, j.size, h.size)
	case j.rank == 0 || int64(j.rank) >= int64(h.size):
		return 0, fmt.Errorf("rank %d of %d is not one that can join rank 0", j.rank, h.size)
	}
	return int(j.rank), h.join(int(j.rank), s)
}

// join takes in a rank, and tells it so by a beat. The last one completes the communicator: see welcome.
func (h *hub) join(rank int, s *spoke) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.isOver:
		return errors.New("rank 0 does not wait any more")
	case h.ranks[rank] != nil:
		return fmt.Errorf("rank %d has joined already: two processes have the same rank", rank)
	case !h.remove(s.link):
		return errors.New("other connections took its place: it was too late")
	}
	h.ranks[rank] = s
	s.post(frame{kind: frameBeat})
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
	if id, err = newID(); err == nil {
		h.announce(&id)
	}
	return id, err
}

// announce tells the identifier to the ranks.
func (h *hub) announce(id *nccl.NcclUniqueId) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.welcomed = true
	for _, s := range h.ranks[1:] {
		s.post(welcome(h.secret, s.server, s.client, id))
	}
}

// complete returns whether all ranks have joined. mu is held.
func (h *hub) complete() bool { return h.joined == h.size-1 }

// heard handles a frame of a rank, which speaks only for itself.
func (h *hub) heard(rank int, s *spoke, f frame) error {
	about, reason, err := f.about(h.size)
	if err != nil || about != rank {
		return errForeign
	}
	if f.kind == frameLost {
		if !h.first(&s.failed) {
			return errForeign
		}
		h.lost(rank, reason)
		return nil
	}
	if !h.first(&s.left) {
		return errForeign
	}
	h.mu.Lock()
	if h.left++; h.left == h.size-1 {
		close(h.alone)
	}
	h.mu.Unlock()
	h.session.goes(rank)
	h.tell(bye(rank), rank)
	return nil
}

// first sets what a rank has said, and returns whether that was allowed: once, after the welcome.
// So what rank 0 holds for a rank that does not read is bounded.
func (h *hub) first(said *bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.welcomed || *said {
		return false
	}
	*said = true
	return true
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
	for _, l := range h.strangers {
		l.close()
	}
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
