package safe

import (
	"runtime"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Query returns whether all work of the stream has completed, without waiting. It returns false
// while a call that enqueues work on another goroutine blocks in the driver. It also returns
// errors of earlier work. It returns [ErrCapturing] if the stream is capturing. Source:
// cuStreamQuery.
func (s *Stream) Query() (done bool, err error) {
	const op = "Stream.Query"
	if c := s.quick(); c != nil {
		code := rt.Query(c.callContext, c.raw, 0)
		c.mu.Unlock()
		return answer(op, code)
	}
	c, err := s.acquire(op)
	if err != nil {
		return false, err
	}
	done, err = c.query(op)
	c.Release()
	return done, err
}

// queryPatience is how long a query waits for another call on the stream. One that takes longer
// enqueues work, and blocks in the driver.
const queryPatience = time.Millisecond

func (s *streamCore) query(op string) (done bool, err error) {
	for end := time.Now().Add(queryPatience); !s.mu.TryLock(); runtime.Gosched() {
		switch c := s.capture.Load(); {
		case rt.InCallback():
			return false, &Error{Op: op, Err: ErrInCallback}
		case c != nil:
			return false, c.refuses(op, "")
		case time.Now().After(end):
			return false, nil
		}
	}
	a := admission{op: op, stream: s, flags: asks | locked}
	if err := a.admit(); err != nil {
		return false, err
	}
	code := rt.Query(s.callContext, s.raw, 0)
	a.leave(true)
	return answer(op, code)
}

// answer translates the result of a query: not ready is no error.
func answer(op string, code driver.CUresult) (done bool, err error) {
	if code == driver.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return code == 0, check(op, code)
}
