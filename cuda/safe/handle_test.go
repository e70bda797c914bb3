package safe

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// object stands for one of CUDA's in the tests of handles.
type object struct {
	handle
	destroyed atomic.Int32
	later     atomic.Int32 // how often destroy puts it off
	err       error
}

func (o *object) kind() string { return "object" }

func (o *object) destroy(bool) error {
	if o.later.Add(-1) >= 0 {
		return errLater
	}
	o.destroyed.Add(1)
	return o.err
}

func live(t *testing.T, parent *handle) *object {
	t.Helper()
	o := &object{}
	require.NoError(t, o.open(o, parent))
	return o
}

func (o *object) gone() bool { return o.destroyed.Load() == 1 }

func TestHandleCloseTwice(t *testing.T) {
	o := live(t, nil)
	o.err = errors.New("refused")
	assert.Equal(t, o.err, o.close(), "the error of the destruction")
	assert.NoError(t, o.close())
	assert.False(t, o.mark())
	assert.EqualValues(t, 1, o.destroyed.Load())
}

func TestHandleCloseDuringUse(t *testing.T) {
	o := live(t, nil)
	require.True(t, o.mark())
	require.NoError(t, o.close())
	assert.False(t, o.mark())
	assert.Zero(t, o.destroyed.Load(), "in use")
	o.unmark()
	assert.Eventually(t, o.gone, 5*time.Second, time.Millisecond)
}

func TestHandleParentFirst(t *testing.T) {
	parent := live(t, nil)
	child := live(t, &parent.handle)
	require.NoError(t, parent.close())
	assert.Zero(t, parent.destroyed.Load())
	late := live(t, &parent.handle) // as a child keeps the parent
	require.NoError(t, late.close())
	parent.err = errors.New("refused")
	assert.ErrorIs(t, child.close(), parent.err, "whoever closes last gets the error")
	assert.True(t, child.gone())
	assert.True(t, parent.gone())
	assert.ErrorIs(t, late.open(late, &parent.handle), ErrClosed)
}

func TestHandleLater(t *testing.T) {
	parent := live(t, nil)
	o := live(t, &parent.handle)
	o.later.Store(3)
	require.NoError(t, parent.close())
	require.NoError(t, o.close())
	assert.Eventually(t, func() bool { return o.gone() && parent.gone() }, 5*time.Second, time.Millisecond)
}

// TestHandleParentLater: what a parent puts off is not the child's error.
func TestHandleParentLater(t *testing.T) {
	parent := live(t, nil)
	child := live(t, &parent.handle)
	grandchild := live(t, &child.handle)
	parent.later.Store(3)
	for _, o := range []*object{parent, child, grandchild} {
		require.NoError(t, o.close())
	}
	assert.True(t, child.gone())
	assert.Eventually(t, parent.gone, 5*time.Second, time.Millisecond)
}

// owner is what a user would hold.
type owner struct{ o *object }

func TestHandleDropped(t *testing.T) {
	reports := make(chan error, 10)
	OnError(func(err error) { reports <- err })
	defer OnError(nil)
	TrackLeaks(true)
	defer TrackLeaks(false)
	o := live(t, nil)
	o.err = errors.New("refused")
	func() {
		u := &owner{o}
		cleanup(u, &o.handle)
	}()
	collect()
	require.Eventually(t, o.gone, 5*time.Second, time.Millisecond)
	var leak *LeakError
	assert.ErrorAs(t, <-reports, &leak)
	assert.Contains(t, leak.Error(), "object")
	assert.Contains(t, leak.Stack, "TestHandleDropped")
	assert.Equal(t, o.err, <-reports)
}

// TestHandleRace: many goroutines use and close an object; it is destroyed
// once, when nobody uses it.
func TestHandleRace(t *testing.T) {
	for range 200 {
		o := live(t, nil)
		var using atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 20 {
					if !o.mark() {
						return
					}
					using.Add(1)
					assert.Zero(t, o.destroyed.Load())
					using.Add(-1)
					o.unmark()
				}
				if i%3 == 0 {
					o.close()
				}
			})
		}
		all.Wait()
		o.close()
		require.Eventually(t, o.gone, 5*time.Second, 100*time.Microsecond)
		assert.Zero(t, using.Load())
	}
	assert.Eventually(t, func() bool {
		return ReaperIdle()
	}, 5*time.Second, time.Millisecond, "the reaper rests")
}
