//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Ranks of one process, which NCCL releases together.

package collective

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRegisteredMemoryAfterReset: NCCL must not release a rank whose device other code has reset, and then releases no
// rank of the process. So what the other ranks have registered stays.
func TestRegisteredMemoryAfterReset(t *testing.T) {
	needsDouble(t)
	if os.Getenv(olderVariable) == "" { // the reset must not meet other tests
		apart(t)
		return
	}
	for name, end := range map[string]func(c *Comm) error{
		"Abort": func(c *Comm) error { c.Abort(nil); return nil },
		"Close": (*Comm).Close,
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistered(t, 100)
			if len(w.comms) < 2 {
				t.Skip("needs two devices")
			}
			at := w.b[1].Raw()
			require.NoError(t, w.b[1].Close())
			require.NoError(t, driver.CuDevicePrimaryCtxReset(w.contexts[0].Device().Raw()))
			require.NoError(t, end(w.comms[0]))
			for _, c := range w.comms {
				<-c.core.gone
			}
			assert.EqualValues(t, 1, told.get(&told.Live), "that of rank 0")
			lasts(t, w.r[1])
			assert.True(t, allocated(t, w.contexts[1], at), "NCCL may still use it")
			atomic.StoreInt32(&told.Live, 0) // it stays for good
		})
	}
}

// A slow context is one that takes until forgets is closed to forget a function, and tells that it begins to.
type slow struct {
	context.Context
	done            chan struct{}
	begins, forgets chan struct{}
}

func (s *slow) Done() <-chan struct{} { return s.done }

func (s *slow) AfterFunc(func()) func() bool {
	return func() bool {
		close(s.begins)
		<-s.forgets
		return true
	}
}

// TestRegisteredMemoryDuringJoin: a rank that NCCL has made counts among those that it releases together before Join
// returns.
func TestRegisteredMemoryDuringJoin(t *testing.T) {
	needsDouble(t)
	contexts := open(t, 2)
	if len(contexts) < 2 {
		t.Skip("needs two devices")
	}
	id, err := NewUniqueID()
	require.NoError(t, err)
	join := func(ctx context.Context, rank int) (*Comm, error) {
		return Join(ctx, contexts[rank], Options{Rank: rank, Size: 2, IDs: []UniqueID{id}})
	}
	late := &slow{context.Background(), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	forget := sync.OnceFunc(func() { close(late.forgets) })
	t.Cleanup(forget)
	joined := make(chan *Comm, 1)
	go func() {
		c, err := join(late, 1)
		assert.NoError(t, err)
		joined <- c
	}()
	c, err := join(soon(t), 0)
	require.NoError(t, err)
	<-late.begins
	b, err := safe.NewBufferWith[int32](contexts[0], 100, safe.BufferOptions{Plain: true})
	require.NoError(t, err)
	r, at := register(t, c, b), b.Raw()
	require.NoError(t, b.Close())
	c.Abort(nil)
	<-c.core.gone
	lasts(t, r)
	assert.True(t, allocated(t, contexts[0], at))
	forget()
	require.NoError(t, (<-joined).Shutdown(soon(t)))
	over(t, r)
	freed(t, contexts[0], at)
	assert.Eventually(t, func() bool { return told.get(&told.Live) == 0 }, time.Minute, time.Millisecond)
	assert.Zero(t, told.get(&told.Freed))
}
