package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// call calls the driver for count operations from n on, and returns how many it has done.
func (r *submission) call(n, count int, chunk bool) (code driver.CUresult, done int) {
	if r.list.across {
		err := peerCopies.With(r.number, func() error {
			code, done = r.callDriver(n, count, chunk)
			return nil
		})
		if err != nil {
			code, done = rt.CodeCallback, 0
		}
	} else {
		code, done = r.callDriver(n, count, chunk)
	}
	return code, done
}

func (r *submission) callDriver(n, count int, chunk bool) (code driver.CUresult, done int) {
	return rt.Batch(r.callFor(), r.raw, r.list.words[r.list.ops[n].word:], count, chunk)
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
