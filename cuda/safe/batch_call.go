package safe

import (
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// call calls the driver for operations from n on, but not for one with memory that a reset has
// destroyed meanwhile, nor for those after it.
func (r *submission) call(n, count int, chunk bool) (code driver.CUresult, done int) {
	if !r.foreign {
		return r.callPresent(n, count, chunk)
	}
	var room [4]*contextState
	peers := r.beginPeers(room[:0])
	if r.list.across {
		err := peerCopies.with(r.number, func() error {
			code, done = r.callPresent(n, count, chunk)
			return nil
		})
		if err != nil {
			code, done = rt.CodeCallback, 0
		}
	} else {
		code, done = r.callPresent(n, count, chunk)
	}
	for _, peer := range peers {
		peer.end(0)
	}
	return code, done
}

// callPresent is call with resets of other contexts kept away.
func (r *submission) callPresent(n, count int, chunk bool) (code driver.CUresult, done int) {
	if count = r.present(n, count); count == 0 {
		return rt.CodeReset, 0
	}
	return rt.Batch(r.callFor(), r.raw, r.list.words[r.list.ops[n].word:], count, chunk)
}

// beginPeers begins a call in each other context whose memory the operations use, until its end, and
// adds it to peers. present finds the memory of one that was reset.
func (r *submission) beginPeers(peers []*contextState) []*contextState {
	for i := range r.list.objects {
		b := r.list.objects[i].block
		if b != nil && !b.ctx.same(r.ctx) && !slices.Contains(peers, b.ctx.shared) && b.ctx.shared.begin(0) {
			peers = append(peers, b.ctx.shared)
		}
	}
	return peers
}

// present returns how many of the operations from n on come before one with memory that a reset
// has destroyed.
func (r *submission) present(n, count int) int {
	if !r.foreign {
		return count
	}
	for i := range r.list.ops[n : n+count] {
		o := &r.list.ops[n+i]
		for _, ref := range r.list.refs[o.from:o.to] {
			if b := r.list.objects[ref].block; b != nil && b.reset() {
				return i
			}
		}
	}
	return count
}

// callFor returns the context to make current.
func (r *submission) callFor() driver.CUcontext {
	if r.list.current {
		return r.ctx.raw
	}
	return r.callContext
}

// failed returns the error for the code of operation n.
func (r *submission) failed(n int, code driver.CUresult) error {
	if code == 0 {
		return nil
	}
	o := &r.list.ops[n]
	if o.kind != batchLaunch {
		return failed(opSubmit, code)
	}
	c := rt.LaunchConfig(r.list.words[o.word:])
	return o.kernel.refused(failed(opSubmit, code), &LaunchConfig{
		Grid: Dim{c.GridDimX, c.GridDimY, c.GridDimZ}, Block: Dim{c.BlockDimX, c.BlockDimY, c.BlockDimZ}, SharedBytes: c.SharedMemBytes,
	})
}
