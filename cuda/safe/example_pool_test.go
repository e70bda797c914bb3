//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A pool reserves the memory of closed buffers for later ones.
func ExampleNewPool() {
	fmt.Println(kept())
	// Output: true <nil>
}

// kept tells whether a pool still has memory after its only buffer was closed.
func kept() (bool, error) {
	x, err := safe.Open(0)
	if err != nil {
		return false, err
	}
	defer x.Close()
	p, err := keepingPool(x, 64<<20)
	if errors.Is(err, safe.ErrNotSupported) {
		return true, nil // drivers before CUDA 12.2 cannot limit the size of a pool
	}
	if err != nil {
		return false, err
	}
	defer p.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return false, err
	}
	defer s.Close()
	b, err := safe.NewBufferFrom[float32](p, s, 1<<20)
	if err != nil {
		return false, err
	}
	if err := errors.Join(b.Close(), s.Synchronize()); err != nil {
		return false, err
	}
	reserved, err := p.Attribute(driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
	return reserved >= 4<<20, err
}

// keepingPool creates a pool of at most the given size. It releases memory to the system
// only when it is closed or trimmed.
func keepingPool(x *safe.Context, bytes uint64) (*safe.Pool, error) {
	p, err := safe.NewPoolWith(x, safe.PoolOptions{MaxSize: bytes})
	if err != nil {
		return nil, err
	}
	return p, p.SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
}
