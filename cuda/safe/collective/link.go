package collective

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// beatInterval is how often each end of a connection says that it lives.
const beatInterval = time.Second

// A link is a connection between rank 0 and another rank.
type link struct {
	conn    net.Conn
	timeout time.Duration // without a frame, the other end counts as lost
	since   time.Time     // when it was made
	once    sync.Once
	closed  chan struct{}

	mu   sync.Mutex // a leaf: guards out and last
	out  []frame    // that write has yet to send
	last bool       // nothing is added to out any more
	wake chan struct{}
}

func newLink(conn net.Conn, timeout time.Duration) *link {
	return &link{conn: conn, timeout: timeout, since: time.Now(), closed: make(chan struct{}), wake: make(chan struct{}, 1)}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		l.conn.Close()
	})
}

// put sends a frame before write runs.
func (l *link) put(f frame) error {
	l.conn.SetWriteDeadline(time.Now().Add(l.timeout))
	_, err := l.conn.Write(f.append(nil))
	return err
}

// post has write send a frame, and does not wait.
func (l *link) post(f frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last {
		l.out = append(l.out, f)
		l.signal()
	}
}

// finish has write close the link once everything is sent.
func (l *link) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = true
	l.signal()
}

// linger is how long the other end has to close its end.
const linger = 2 * time.Second

// hangUp tells the other end that nothing follows, and waits until it hangs up, too: a
// connection that is closed with something unread loses what was sent.
func (l *link) hangUp() {
	if c, ok := l.conn.(*net.TCPConn); !ok || c.CloseWrite() != nil {
		return
	}
	select {
	case <-l.closed: // by the reader
	case <-time.After(linger):
	}
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the frames to send.
func (l *link) take() (out []frame, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out, l.out = l.out, nil
	return out, l.last
}

// write sends posted frames, and beats, until the link is closed.
func (l *link) write() {
	defer l.close()
	beats := time.NewTicker(beatInterval)
	defer beats.Stop()
	for {
		out, last := l.take()
		for _, f := range out {
			if l.put(f) != nil {
				return
			}
		}
		if last {
			l.hangUp()
			return
		}
		select {
		case <-l.closed:
			return
		case <-l.wake:
		case <-beats.C:
			if l.put(frame{kind: frameBeat}) != nil {
				return
			}
		}
	}
}

// read reads a frame other than a beat.
func (l *link) read() (frame, error) {
	for {
		l.conn.SetReadDeadline(time.Now().Add(l.timeout))
		f, err := readFrame(l.conn)
		if err != nil || f.kind != frameBeat {
			return f, err
		}
	}
}

// ended says in words why read failed.
func (l *link) ended(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "nothing was heard of it for " + l.timeout.String()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "its process has ended"
	}
	return "the connection to it broke: " + err.Error()
}
