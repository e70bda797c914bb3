package safe

import (
	"errors"
	"math"
	"runtime"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// toHeap gives the memory back: to the heap's cache, or to the pool.
func (b *block) toHeap() error {
	h := b.heap
	if !h.cache.takes(b.size) {
		return b.toPool(b.address)
	}
	var err error
	for _, old := range h.cache.put(cachedBlock{b.address, b.size}) {
		err = errors.Join(err, b.toPool(old.address))
	}
	return err
}

// toPool frees memory of the block's heap.
func (b *block) toPool(address driver.CUdeviceptr) error {
	_, err := b.freed(b.ctx.home().Free(address, b.heap.stream))
	return err
}

const closing = "Close" // of a buffer, of whatever kind

// freeMemory frees the block. The work that uses it has completed.
func (b *block) freeMemory() error {
	if b.heap != nil {
		return b.toHeap()
	}
	if b.graph != nil && !b.graph.leave() {
		return nil
	}
	err := b.ctx.destroying(closing, func() error {
		return hostWaits.With(0, func() error { return b.free(b) }) // CUDA waits for the context's work first
	})
	if b.pinner != nil && err == nil {
		b.pinner.Unpin()
	} else if b.pinner != nil { // the driver may still use the addresses: never unpin
		stranded.keep(*b.pinner)
	}
	return err
}

// stranded holds pins that are never released: Go crashes a program that drops one.
var stranded pins

type pins struct {
	sync.Mutex
	of []runtime.Pinner
}

func (p *pins) keep(pin runtime.Pinner) {
	p.Lock()
	defer p.Unlock()
	p.of = append(p.of, pin)
}

// freeHere frees a block in the order of the stream, unless the stream is closed, is
// capturing, or is in use by another call.
func (s *streamCore) freeHere(b *block) (done bool, err error) {
	if !s.mu.TryLock() {
		return false, nil
	}
	defer s.mu.Unlock()
	if s.over || s.capture.Load() != nil {
		return false, nil
	}
	if s.legacy() {
		if !s.ctx.shared.legacy.Enter() {
			return false, nil
		}
		defer s.ctx.shared.legacy.Leave()
	}
	s.released()
	return b.freed(s.home().FreeAsync(b.address, s.raw))
}

// freeAside frees a block on an idle internal stream, if there is one. The work that uses
// the block has completed.
func (b *block) freeAside() (done bool, err error) {
	shared := b.ctx.shared
	shared.releasing.Lock() // one stream is enough, and the driver may wait before it creates another
	defer shared.releasing.Unlock()
	stream, err := shared.releases.get(b.ctx)
	if err != nil {
		return err == rt.CodeReset, nil
	}
	defer shared.releases.put(stream, math.MaxInt32)
	return b.freed(b.ctx.home().FreeAsync(b.address, stream))
}

// freed translates the result of a stream-ordered release. A reset of the context by other code has freed
// the memory already.
func (b *block) freed(code driver.CUresult) (done bool, err error) {
	switch code {
	case rt.CodeCapturing:
		return false, nil
	case rt.CodeReset:
		return true, nil
	}
	return true, check(closing, code)
}
