package admit

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A Gate admits calls while no capture that they could see is open.
type Gate struct {
	captures atomic.Int32 // open, or about to begin
	calls    atomic.Int32 // in flight, short
	long     atomic.Int32 // in flight, perhaps for as long as the GPU works
	wanted   atomic.Int32 // captures that wait for long calls
}

// Enter admits a short call until Leave, unless the gate is shut.
func (g *Gate) Enter() bool {
	g.calls.Add(1)
	Between()
	if g.captures.Load() == 0 {
		g.entered()
		return true
	}
	g.calls.Add(-1)
	return false
}

// Leave ends a short call.
func (g *Gate) Leave() {
	g.left()
	g.calls.Add(-1)
}

// EnterLong admits a call that may block to all gates, until LeaveLong of each. Captures
// that wait to begin have priority, or successive calls would starve them.
func EnterLong(gates ...*Gate) error {
	for Nap := ShortNap; ; Nap = Nap.Take() {
		entered, err := TryLong(gates...)
		switch {
		case entered || err != nil:
			return err
		case rt.InCallback():
			return rt.CodeCallback
		}
	}
}

// TryLong admits a call that may block to all gates, until LeaveLong of each. It returns false if captures wait to
// begin: try again later. It returns rt.CodeCapturing while a capture is open.
func TryLong(gates ...*Gate) (entered bool, err error) {
	var captures, wanted int32
	for _, g := range gates {
		g.long.Add(1)
		Between()
		captures += g.captures.Load()
		wanted += g.wanted.Load()
	}
	if captures+wanted == 0 {
		return true, nil
	}
	for _, g := range gates {
		g.LeaveLong()
	}
	if captures > 0 {
		return false, rt.CodeCapturing
	}
	return false, nil
}

// LeaveLong ends a long call.
func (g *Gate) LeaveLong() { g.long.Add(-1) }

// Shut rejects new calls until Open.
func (g *Gate) Shut() { g.captures.Add(1) }

// Idle returns whether no short call is in flight.
func (g *Gate) Idle() bool { return g.calls.Load() == 0 }

// Close rejects new calls until Open, and waits for the short ones in flight.
func (g *Gate) Close() {
	g.Shut()
	Between()
	for g.calls.Load() > 0 {
		runtime.Gosched()
		Between()
	}
}

// CloseSoon rejects new calls until Open, and returns whether the short ones in flight have returned within a
// second: a record may block in the driver.
func (g *Gate) CloseSoon() bool {
	g.Shut()
	Between()
	for until := time.Now().Add(time.Second); g.calls.Load() > 0; runtime.Gosched() {
		Between()
		if time.Now().After(until) {
			return false
		}
	}
	return true
}

// Open undoes Shut, Close or CloseSoon.
func (g *Gate) Open() { g.captures.Add(-1) }

// OpenAll opens the gates.
func OpenAll(gates []*Gate) {
	for _, g := range gates {
		g.Open()
	}
}

// Want keeps new long calls out of the gates until Unwant. It returns false, and keeps none out, if some are in
// flight.
func Want(gates []*Gate) bool {
	for i, g := range gates {
		g.wanted.Add(1)
		Between()
		if g.long.Load() > 0 {
			Unwant(gates[:i+1])
			return false
		}
	}
	return true
}

// Unwant lets long calls in again.
func Unwant(gates []*Gate) {
	for _, g := range gates {
		g.wanted.Add(-1)
	}
}

// Settle keeps new long calls out of the gates, and waits for those in flight. Those may in turn wait for new ones, as
// the ranks of a communicator do, so all long calls may enter for a moment, less and less often. Such a moment begins
// when a number of intervals have passed since began: as each interval is twice the one before, the moments of all
// who wait meet, also if they wait for different gates. It returns the cause if ctx ends first.
func Settle(ctx context.Context, gates []*Gate) error {
	wantMore := func() {
		for _, g := range gates {
			g.wanted.Add(1)
		}
	}
	wantMore()
	Between()
	interval := Patience
	for Nap, until := ShortNap, nextEnd(interval); ; Nap = Nap.Take() {
		var long int32
		for _, g := range gates {
			long += g.long.Load()
		}
		if long == 0 {
			return nil
		}
		if ctx.Err() != nil {
			Unwant(gates)
			return context.Cause(ctx)
		}
		if time.Now().After(until) {
			Unwant(gates)
			time.Sleep(4 * time.Duration(LongNap)) // those who wait nap, and so do the long calls
			wantMore()
			interval *= 2
			until = nextEnd(interval)
		}
	}
}

var began = time.Now()

// nextEnd returns when the present interval ends, of those that follow each other since began.
func nextEnd(interval time.Duration) time.Time {
	return began.Add((time.Since(began)/interval + 1) * interval)
}
