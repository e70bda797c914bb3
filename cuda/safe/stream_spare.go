package safe

import (
	"errors"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// mostSpare is how many closed streams a context keeps.
const mostSpare = 32

// spareStreams are streams of one context that were closed, for [NewStream] to use again:
// while work of the context is stuck, the driver may block in creating a stream, and in
// destroying one at the same time.
type spareStreams struct {
	mu   sync.Mutex
	n    int
	free map[streamKind][]driver.CUstream
}

// A streamKind is what streams are created with.
type streamKind struct {
	nonBlocking bool
	priority    int
}

// take returns a stream of the kind, 0 if there is none.
func (p *spareStreams) take(k streamKind) driver.CUstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.free[k]
	if len(of) == 0 {
		return 0
	}
	s := of[len(of)-1]
	p.free[k] = of[:len(of)-1]
	p.n--
	return s
}

// keep takes over a stream whose work has completed, unless there are enough, other code has
// reset the context, the context belongs to the program, or the program may know the stream: by its handle or ID, or by
// an attribute that it has set.
func (p *spareStreams) keep(s *streamCore) bool {
	if s.known.Load() || s.green != nil || !s.ctx.shared.primary.Load() {
		return false
	}
	return s.ctx.home().Check() == 0 && p.put(streamKind{s.nonBlocking, s.priority}, s.raw)
}

// put adds a stream unless there are enough.
func (p *spareStreams) put(k streamKind, s driver.CUstream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n >= mostSpare {
		return false
	}
	if p.free == nil {
		p.free = map[streamKind][]driver.CUstream{}
	}
	p.free[k] = append(p.free[k], s)
	p.n++
	return true
}

// empty destroys the streams. The context must be current.
func (p *spareStreams) empty() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, of := range p.free {
		for _, s := range of {
			errs = append(errs, destroyStream(s))
		}
	}
	p.free, p.n = nil, 0
	return errors.Join(errs...)
}

// reveal notes that the program may know CUDA's stream, which is then not used again.
func (s *streamCore) reveal() {
	for s.of != nil {
		s = s.of
	}
	s.known.Store(true)
}
