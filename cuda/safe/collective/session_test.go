package collective

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A witness stands for the other processes of a session, and notes what it tells them.
type witness struct {
	mu     sync.Mutex // guards events
	events []string
}

func (m *witness) note(event string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, event)
}

func (m *witness) fail(cause error)          { m.note("fails: " + cause.Error()) }
func (m *witness) leave()                    { m.note("leaves") }
func (m *witness) end()                      { m.note("ends") }
func (m *witness) deserted() <-chan struct{} { return nil }

// TestSessionEnds: the last communicator of a session tells the other processes, also if none was the only one
// when it began to end.
func TestSessionEnds(t *testing.T) {
	peers, a, b := &witness{}, &core{}, &core{}
	s := newSession()
	s.peers = peers
	require.NoError(t, errors.Join(s.add(a), s.add(b)))
	s.remove(a)
	assert.Empty(t, peers.events)
	s.remove(b)
	assert.Equal(t, []string{"leaves", "ends"}, peers.events)
}

// TestSessionFailed: a session that has failed tells so once, and takes no more communicators.
func TestSessionFailed(t *testing.T) {
	peers := &witness{}
	s := newSession()
	s.peers = peers
	cause := errors.New("cause")
	s.fail(cause)
	s.fail(errors.New("another"))
	err := s.add(&core{})
	assert.ErrorIs(t, err, cause)
	assert.ErrorIs(t, err, ErrAborted)
	assert.ErrorIs(t, s.usable(), cause)
	assert.Equal(t, []string{"fails: cause"}, peers.events)
}
