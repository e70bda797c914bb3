package admit

import "time"

// A Nap is the pause before the next try of something that may take a moment, or long.
type Nap time.Duration

// Where the other side takes microseconds, naps begin with ShortNap; none is longer than LongNap. On Linux the
// first few, up to exactNap, are exact unless many goroutines nap at once.
const (
	ShortNap = Nap(20 * time.Microsecond)
	LongNap  = Nap(time.Millisecond)
	exactNap = 8 * ShortNap
)

// Take sleeps, and returns the next Nap, which is longer.
func (n Nap) Take() Nap {
	if n > exactNap || !napExactly(time.Duration(n)) {
		time.Sleep(time.Duration(n))
	}
	return min(2*n, LongNap)
}

// LockOr locks mu. Without wait, it returns false if mu is locked.
func LockOr(mu Locker, wait bool) bool {
	if wait {
		mu.Lock()
		return true
	}
	return mu.TryLock()
}
