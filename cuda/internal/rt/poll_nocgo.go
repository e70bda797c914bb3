//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import "github.com/cudabind/cudabind/cuda/generated/driver"

// The intervals of [Poll], in nanoseconds. They are those of poll.c.
const (
	soonest = 10 * 1000   // the shortest interval between queries of an event
	latest  = 2000 * 1000 // the longest
	share   = 32          // the interval is 1/share of the time waited so far
	near    = 50 * 1000   // around the expected end, with the shortest interval
	spin    = 30 * 1000   // around the expected end in which Await queries all the time
	rare    = 40 * 1000   // soonest of Await before that
	portion = 8           // share of the same
	most    = 256         // completed events per call
)

// interval returns the time after t until the next query of an event.
func (e *Entry) interval(t int64) int64 {
	wait := (t - e.Since) / share
	left := e.Since + e.Expected - t // time until the expected end
	if e.Expected != 0 && left > -near && wait > soonest {
		if left < near {
			return soonest
		}
		wait = min(wait, left-near)
	}
	if wait >= latest { // long waits become due together, after one nap
		return latest - t%latest
	}
	return max(wait, soonest)
}

// pass queries the events that are due. It returns the number of completed ones, and the
// time when one is due again.
func pass(entries []Entry) (done int, next int64) {
	t := now()
	next = t + latest
	for i := range entries {
		if done == most {
			break
		}
		e := &entries[i]
		if e.Due <= t {
			if e.Since == 0 {
				e.Since = t
			}
			if e.Result = e.EventQuery(e.Event); e.Result != driver.CUDA_ERROR_NOT_READY {
				done++
				continue
			}
			e.Due = t + e.interval(t)
		}
		next = min(next, e.Due)
	}
	return done, next
}

// sparse returns the time until the next query of an event of which left nanoseconds are expected, since nanoseconds after
// the first.
func sparse(since, left int64) int64 { return min(max(since/portion, rare), left-spin) }

// Await waits for an event that is likely to complete in e.Expected nanoseconds. It sleeps between a few queries until
// shortly before that time, then queries all the time, and returns driver.CUDA_ERROR_NOT_READY shortly after it.
func Await(e *Entry) driver.CUresult {
	begin := now()
	for {
		r, t := e.EventQuery(e.Event), now()
		if r != driver.CUDA_ERROR_NOT_READY || t >= begin+e.Expected+spin {
			return r
		}
		if wait := sparse(t-begin, begin+e.Expected-t); wait > 0 {
			doze(wait)
		}
	}
}

// Poll queries the events of entries until some have completed, and returns their number.
// It sleeps in between. It also returns if Wake was called after the alarm returned seen.
func Poll(entries []Entry, a *Alarm, seen uint32) int {
	for {
		done, next := pass(entries)
		if done > 0 || a.Seen() != seen {
			return done
		}
		if left := next - now(); left > 0 {
			a.nap(seen, left)
		}
	}
}
