//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIDs: ranks join by identifiers that the program has exchanged.
func TestIDs(t *testing.T) {
	for name, n := range map[string]int{"one": 1, "several": 2} {
		t.Run(name, func(t *testing.T) {
			contexts := open(t, 2)
			if len(contexts) < 2 {
				t.Skip("needs two devices")
			}
			var ids []UniqueID
			for range n {
				id, err := NewUniqueID()
				require.NoError(t, err)
				assert.NotContains(t, ids, id)
				ids = append(ids, id)
			}
			var ranks sync.WaitGroup
			for i, x := range contexts {
				ranks.Go(func() {
					c, err := Join(soon(t), x, Options{Rank: i, Size: 2, IDs: ids})
					if !assert.NoError(t, err) {
						return
					}
					s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
					assert.NoError(t, err)
					defer s.Close()
					b, err := safe.Upload(x, []int32{int32(i + 1)})
					assert.NoError(t, err)
					defer b.Close()
					assert.NoError(t, errors.Join(AllReduce(c, s, b, b, Sum), c.Wait(soon(t), s)))
					assert.EqualValues(t, 3, contents(t, b)[0])
					assert.NoError(t, c.Shutdown(soon(t)))
				})
			}
			ranks.Wait()
		})
	}
}

// TestIDsRankMissing: an ended context ends the wait for a rank inside NCCL.
func TestIDsRankMissing(t *testing.T) {
	x := open(t, 1)[0]
	id, err := NewUniqueID()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = Join(ctx, x, Options{Rank: 0, Size: 2, IDs: []UniqueID{id}})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	defer s.Close()
	g, err := s.Capture(func() error { return nil })
	require.NoError(t, err, "captures go on")
	require.NoError(t, g.Close())
}

func TestIDsRefused(t *testing.T) {
	_, err := Join(soon(t), open(t, 1)[0], Options{Size: 1, IDs: make([]UniqueID, 2)})
	assert.ErrorIs(t, err, safe.ErrRange)
	assert.ErrorContains(t, err, "Options.IDs has 2 identifiers for 1 ranks")
}
