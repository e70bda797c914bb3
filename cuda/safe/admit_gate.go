package safe

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A gate admits calls while no capture that they could see is open.
type gate struct {
	captures atomic.Int32 // open, or about to begin
	calls    atomic.Int32 // in flight, short
	long     atomic.Int32 // in flight, perhaps for as long as the GPU works
	wanted   atomic.Int32 // captures that wait for long calls
}

// enter admits a short call until leave.
func (g *gate) enter() bool {
	g.calls.Add(1)
	between()
	if g.captures.Load() == 0 {
		g.entered()
		return true
	}
	g.calls.Add(-1)
	return false
}

func (g *gate) leave() {
	g.left()
	g.calls.Add(-1)
}

// enterLong admits a call that may block to all gates, until leaveLong of each. Captures
// that wait to begin have priority, or successive calls would starve them.
func enterLong(gates ...*gate) error {
	for nap := shortNap; ; nap = nap.take() {
		entered, err := tryLong(gates...)
		switch {
		case entered || err != nil:
			return err
		case rt.InCallback():
			return rt.CodeCallback
		}
	}
}

// tryLong is enterLong that does not wait for captures that wait to begin.
func tryLong(gates ...*gate) (entered bool, err error) {
	var captures, wanted int32
	for _, g := range gates {
		g.long.Add(1)
		between()
		captures += g.captures.Load()
		wanted += g.wanted.Load()
	}
	if captures+wanted == 0 {
		return true, nil
	}
	for _, g := range gates {
		g.leaveLong()
	}
	if captures > 0 {
		return false, rt.CodeCapturing
	}
	return false, nil
}

func (g *gate) leaveLong() { g.long.Add(-1) }

// close rejects new calls, and waits for the short ones in flight.
func (g *gate) close() {
	g.captures.Add(1)
	between()
	for g.calls.Load() > 0 {
		runtime.Gosched()
		between()
	}
}

// closeSoon is close that tells whether the calls in flight have returned within a second: a
// record may block in the driver. The caller opens the gate in either case.
func (g *gate) closeSoon() bool {
	g.captures.Add(1)
	between()
	for until := time.Now().Add(time.Second); g.calls.Load() > 0; runtime.Gosched() {
		between()
		if time.Now().After(until) {
			return false
		}
	}
	return true
}

func (g *gate) open() { g.captures.Add(-1) }

func openAll(gates []*gate) {
	for _, g := range gates {
		g.open()
	}
}

// want keeps new long calls out of the gates. It fails if some are in flight.
func want(gates []*gate) bool {
	for i, g := range gates {
		g.wanted.Add(1)
		between()
		if g.long.Load() > 0 {
			unwant(gates[:i+1])
			return false
		}
	}
	return true
}

func unwant(gates []*gate) {
	for _, g := range gates {
		g.wanted.Add(-1)
	}
}

// settle keeps new long calls out of the gates, and waits for those in flight. Those may
// in turn wait for new ones, as the ranks of a communicator do: it lets new ones in for a
// moment, less and less often.
func settle(ctx context.Context, op string, gates []*gate) error {
	wantMore := func() {
		for _, g := range gates {
			g.wanted.Add(1)
		}
	}
	wantMore()
	between()
	closed := patience
	for nap, until := shortNap, time.Now().Add(closed); ; nap = nap.take() {
		var long int32
		for _, g := range gates {
			long += g.long.Load()
		}
		if long == 0 {
			return nil
		}
		if ctx.Err() != nil {
			unwant(gates)
			return &Error{Op: op, Err: context.Cause(ctx)}
		}
		if time.Now().After(until) {
			unwant(gates)
			time.Sleep(2 * time.Duration(longNap))
			wantMore()
			closed *= 2
			until = time.Now().Add(closed)
		}
	}
}
