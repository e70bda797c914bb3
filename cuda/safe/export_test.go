// Exports for the tests of package safe_test.

package safe

import (
	"time"

	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// ReaperIdle tells whether nothing is left to be given back.
func ReaperIdle() bool { return lifetime.Idle() }

// DeviceFiles is deviceFiles.
var DeviceFiles = deviceFiles

// KnownPeers is how many contexts are remembered whose memory x may use.
func KnownPeers(x *Context) int {
	s := x.core.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.peers)
}

// RevokeInFlight makes r what a concurrent Revoke makes it that has not counted it yet.
func RevokeInFlight(r *Resource) { r.memory.resource.revoked.Store(true) }

// SpinFor sets how long a wait spins with the stream locked, and makes a wait long that
// takes ten times that, until restore.
func SpinFor(d time.Duration) (restore func()) {
	spin, before := lockedSpin, long
	lockedSpin, long = d, 10*d
	return func() { lockedSpin, long = spin, before }
}

// InTurn calls f while no graph is copied, instantiated or destroyed.
func InTurn(f func()) { _ = executables.Serialize(func() error { f(); return nil }) }

// WithoutWaits calls f while no wait of the host is in flight, as the destruction of a pool does.
func WithoutWaits(f func()) { _ = hostWaits.Exclusive(func() error { f(); return nil }) }

// WithoutExecutables calls f while no executable is launched or changed, as the destruction of one does.
func WithoutExecutables(f func()) { _ = executables.Exclusive(func() error { f(); return nil }) }

// WithoutPeerCopies calls f while no copy between devices begins, as a change of access does.
func WithoutPeerCopies(f func()) { _ = peerCopies.Exclusive(func() error { f(); return nil }) }

// LockStream does what a call on s does that is in flight until unlock, by any goroutine.
func LockStream(s *Stream) (unlock func()) {
	c := s.core
	c.mu.Lock()
	c.mu.HandOver()
	return func() {
		c.mu.TakeOver()
		c.mu.Unlock()
	}
}

// LockCapture does what a call on a stream of c does that is in flight until unlock, by any
// goroutine.
func LockCapture(c *Capture) (unlock func()) {
	mu := c.c.graph.mu
	mu.Lock()
	mu.HandOver()
	return func() {
		mu.TakeOver()
		mu.Unlock()
	}
}

// Witnessing returns whether the witness of futures will call the driver again.
func Witnessing() bool {
	closures.Lock()
	defer closures.Unlock()
	return closures.witness
}

// Pending is how much work is counted as pending on s.
func Pending(s *Stream) int {
	s.core.mu.Lock()
	defer s.core.mu.Unlock()
	return s.core.pending
}

// Crowd is how many streams of x count for NewStream.
func Crowd(x *Context) int { return int(x.core.shared.crowd.now.Load()) }

// Users is how many streams count as users of b.
func Users[T any](b *Buffer[T]) int { return len(b.memory.known().streams()) }

// Reserved is how much room is kept on s for calls that wait for other streams.
func Reserved(s *Stream) int { return int(s.core.reserved.Load()) }

// InOrder returns two streams in the order in which calls on both wait for room.
func InOrder(a, b *Stream) (first, second *Stream) {
	if inOrder([]*streamCore{a.core, b.core})[0] == a.core {
		return a, b
	}
	return b, a
}

// Locked tells whether a call on s is in flight.
func Locked(s *Stream) bool {
	if s.core.mu.TryLock() {
		s.core.mu.Unlock()
		return false
	}
	return true
}

// SameQueue tells whether the streams share a queue.
func SameQueue(a, b *Stream) bool { return a.core.queue == b.core.queue }

// SameRecording tells whether the events share their state.
func SameRecording(a, b *Event) bool { return a.core.recording == b.core.recording }

// ClosePatience sets how long Close waits for a call in flight, until restore.
func ClosePatience(d time.Duration) (restore func()) {
	before := closePatience.Swap(int64(d))
	return func() { closePatience.Store(before) }
}

// TrimHeaps trims the heaps, as an allocation has it done that finds too little memory.
func TrimHeaps() { trimHeaps() }

// MostBatchWords sets how many words a Batch may have, until restore.
func MostBatchWords(n int) (restore func()) {
	before := mostWords
	mostWords = n
	return func() { mostWords = before }
}

// RawPriority is the priority that CUDA gets for cfg.
func RawPriority(cfg LaunchConfig) int32 { return *cfg.attributes(nil)[0].Value.Priority() }

// Unfit returns why no kernel can take a value; "" if one can.
func Unfit(a Arg) string {
	if a.raw.Kind() != argUnfit {
		return ""
	}
	return *(*string)(a.raw.Pointer)
}

// ResetPatience sets how long a reset waits for what is in use, until restore.
func ResetPatience(d time.Duration) (restore func()) {
	before := resetPatience
	resetPatience = d
	return func() { resetPatience = before }
}

// SweepWaits waits until the poller has forgotten the waits that were given up.
func SweepWaits() { poller.sweep() }

// Expect has the next wait for the stream expect its end after d, as two waits that took so long would.
func Expect(s *Stream, d time.Duration) {
	s.core.slow.Store(true)
	s.core.steady.Store(true)
	s.core.took.Store(int64(d))
}

// Rounds is how often the poller has looked for new waits.
func Rounds() uint32 { return poller.rounds.Load() }
