package lifetime

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// object stands for one of CUDA's in the tests of handles.
type object struct {
	Handle
	destroyed atomic.Int32
	later     atomic.Int32 // how often destroy puts it off
	err       error
	closes    func() // called by destroy
}

func (o *object) Kind() string { return "object" }

func (o *object) Destroy(bool) error {
	if o.later.Add(-1) >= 0 {
		return ErrLater
	}
	o.destroyed.Add(1)
	if o.closes != nil {
		o.closes()
	}
	return o.err
}

func live(t *testing.T, parent *Handle) *object {
	t.Helper()
	o := &object{}
	require.NoError(t, o.Open(o, parent))
	return o
}

func (o *object) gone() bool { return o.destroyed.Load() == 1 }

// TestFamilyForgets: objects that were destroyed are not kept by what they belonged to.
func TestFamilyForgets(t *testing.T) {
	parent := live(t, nil)
	var watched [4]Cleanup
	var all [4]*object
	for i := range all {
		all[i] = live(t, &parent.Handle)
		watched[i].Watch(&all[i].Handle)
	}
	for _, i := range []int{1, 3, 0, 2} {
		watched[i].Stop()
		require.NoError(t, all[i].Close())
	}
	assert.Nil(t, parent.family.newest)
	for _, o := range all {
		assert.Equal(t, member{}, o.member, "nor by each other")
	}
	require.NoError(t, parent.Close())
}

func TestHandleCloseTwice(t *testing.T) {
	o := live(t, nil)
	o.err = errors.New("refused")
	assert.Equal(t, o.err, o.Close(), "the error of the destruction")
	assert.NoError(t, o.Close())
	assert.False(t, o.Acquire())
	assert.EqualValues(t, 1, o.destroyed.Load())
}

func TestHandleCloseDuringUse(t *testing.T) {
	o := live(t, nil)
	require.True(t, o.Acquire())
	require.NoError(t, o.Close())
	assert.False(t, o.Acquire())
	assert.Zero(t, o.destroyed.Load(), "in use")
	o.Release()
	assert.Eventually(t, o.gone, time.Minute, time.Millisecond)
}

func TestHandleParentFirst(t *testing.T) {
	parent := live(t, nil)
	child := live(t, &parent.Handle)
	require.NoError(t, parent.Close())
	assert.Zero(t, parent.destroyed.Load())
	late := live(t, &parent.Handle) // as a child keeps the parent
	require.NoError(t, late.Close())
	parent.err = errors.New("refused")
	assert.ErrorIs(t, child.Close(), parent.err, "whoever closes last gets the error")
	assert.True(t, child.gone())
	assert.True(t, parent.gone())
	assert.ErrorIs(t, late.Open(late, &parent.Handle), ErrClosed)
}

func TestHandleLater(t *testing.T) {
	parent := live(t, nil)
	o := live(t, &parent.Handle)
	o.later.Store(3)
	require.NoError(t, parent.Close())
	require.NoError(t, o.Close())
	assert.Eventually(t, func() bool { return o.gone() && parent.gone() }, time.Minute, time.Millisecond)
}

// TestHandleParentLater: what a parent puts off is not the child's error.
func TestHandleParentLater(t *testing.T) {
	parent := live(t, nil)
	child := live(t, &parent.Handle)
	grandchild := live(t, &child.Handle)
	parent.later.Store(3)
	for _, o := range []*object{parent, child, grandchild} {
		require.NoError(t, o.Close())
	}
	assert.True(t, child.gone())
	assert.Eventually(t, parent.gone, time.Minute, time.Millisecond)
}

// owner is what a user would hold.
type owner struct {
	o       *object
	cleanup Cleanup
}

func owned(o *object) *owner {
	u := &owner{o: o}
	u.cleanup.Watch(&o.Handle)
	return u
}

// TestCleanupAfterStop: what watched an object that was closed watches another one, while the first
// is still held.
func TestCleanupAfterStop(t *testing.T) {
	first, second := live(t, nil), live(t, nil)
	held := owned(first)
	held.cleanup.Stop()
	held.cleanup.Stop()
	owned(second)
	runtime.GC()
	require.Eventually(t, second.gone, time.Minute, time.Millisecond)
	assert.False(t, first.Closed(), "stopped")
	runtime.KeepAlive(held)
	require.NoError(t, first.Close())
}

// TestCleanupCopied: stopping a copy of what watches an object does not stop what watches another one by then.
func TestCleanupCopied(t *testing.T) {
	first, second := live(t, nil), live(t, nil)
	var u, copied Cleanup
	u.Watch(&first.Handle)
	copied.handle = u.handle
	copied.watch.Store(u.watch.Load())
	u.Stop()
	w := watches.Get().(*watch) // now or later, another value gets it
	w.target.handle.Store(&second.Handle)
	copied.watch.Store(w)
	copied.Stop()
	assert.Same(t, &second.Handle, w.target.handle.Load())
	runtime.KeepAlive(w)
	require.NoError(t, errors.Join(first.Close(), second.Close()))
}

// TestCleanupRace: values are closed and dropped on many goroutines.
func TestCleanupRace(t *testing.T) {
	var all sync.WaitGroup
	var objects [4][]*object
	for i := range objects {
		for range 500 {
			objects[i] = append(objects[i], live(t, nil))
		}
		all.Go(func() {
			for j, o := range objects[i] {
				u := owned(o)
				if j%2 == 0 { // kept
					u.cleanup.Stop()
				}
				if j%100 == 0 {
					runtime.GC()
				}
			}
		})
	}
	all.Wait()
	kept := func(i int) bool { return i%2 == 0 }
	for _, some := range objects {
		require.Eventually(t, func() bool {
			runtime.GC()
			for i, o := range some {
				if !kept(i) && !o.gone() {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
		for i, o := range some {
			if kept(i) {
				assert.False(t, o.Closed())
				require.NoError(t, o.Close())
			}
		}
	}
}

func TestHandleDropped(t *testing.T) {
	reports := make(chan error, 10)
	OnError(func(err error) { reports <- err })
	defer OnError(nil)
	TrackLeaks(true)
	defer TrackLeaks(false)
	o := live(t, nil)
	o.err = errors.New("refused")
	owned(o)
	runtime.GC()
	require.Eventually(t, o.gone, time.Minute, time.Millisecond)
	var leak *Leak
	assert.ErrorAs(t, <-reports, &leak)
	assert.Contains(t, leak.Error(), "object")
	assert.Contains(t, leak.Stack, "TestHandleDropped")
	assert.Equal(t, o.err, <-reports)
}

// TestHandleRace: many goroutines use and close an object; it is destroyed
// once, when no goroutine uses it.
func TestHandleRace(t *testing.T) {
	for range 200 {
		o := live(t, nil)
		var using atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 20 {
					if !o.Acquire() {
						return
					}
					using.Add(1)
					assert.Zero(t, o.destroyed.Load())
					using.Add(-1)
					o.Release()
				}
				if i%3 == 0 {
					o.Close()
				}
			})
		}
		all.Wait()
		o.Close()
		require.Eventually(t, o.gone, time.Minute, 100*time.Microsecond)
		assert.Zero(t, using.Load())
	}
	assert.Eventually(t, func() bool {
		return Idle()
	}, time.Minute, time.Millisecond, "the reaper rests")
}

// TestCloseFamily closes what users hold, children of children included, newest first.
func TestCloseFamily(t *testing.T) {
	root, other := live(t, nil), live(t, nil)
	require.NoError(t, root.CloseFamily(), "of nothing")
	var order []string
	var users []*owner // else the garbage collector would close the objects
	defer func() { runtime.KeepAlive(users) }()
	made := func(name string, parent *Handle) *object {
		o := live(t, parent)
		o.closes = func() { order = append(order, name) }
		users = append(users, owned(o))
		return o
	}
	child := made("child", &root.Handle)
	grandchild := made("grandchild", &child.Handle)
	internal := live(t, &root.Handle) // that no user holds
	gone := made("gone", &root.Handle)
	last := made("last", &root.Handle)
	stranger := made("stranger", &other.Handle)
	require.NoError(t, gone.Close())
	last.err = errors.New("refused")
	assert.ErrorIs(t, root.CloseFamily(), last.err)
	assert.Equal(t, []string{"gone", "last", "grandchild", "child"}, order)
	assert.True(t, grandchild.gone())
	assert.False(t, internal.Closed())
	assert.False(t, stranger.Closed())
	assert.False(t, root.Closed())
	require.NoError(t, root.CloseFamily(), "nothing is left")
	late := made("late", &root.Handle)
	require.NoError(t, root.CloseFamily())
	assert.True(t, late.gone())
	for _, o := range []*object{internal, root, stranger, other} {
		require.NoError(t, o.Close())
		assert.True(t, o.gone())
	}
}

// TestCloseFamilyRace: objects come and go meanwhile.
func TestCloseFamilyRace(t *testing.T) {
	root := live(t, nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				o := live(t, &root.Handle)
				u := owned(o)
				assert.NoError(t, o.Close())
				assert.True(t, o.Closed())
				runtime.KeepAlive(u)
			}
		})
		all.Go(func() {
			for range 50 {
				assert.NoError(t, root.CloseFamily())
			}
		})
	}
	all.Wait()
	assert.Nil(t, root.family.newest)
	require.NoError(t, root.Close())
	assert.True(t, root.gone())
}

// elsewhere is destroyed by a Queue of its own, but not before it is let go.
type elsewhere struct {
	Handle
	queue Queue
	tries atomic.Int32
	free  atomic.Bool
}

func (o *elsewhere) Kind() string { return "elsewhere" }

func (o *elsewhere) Destroy(wait bool) error {
	switch {
	case !wait:
		return &Elsewhere{&o.queue}
	case o.free.Load():
		return nil
	}
	o.tries.Add(1)
	return ErrLater
}

// TestElsewhereLater: a destruction that is put off elsewhere is tried again after a pause.
func TestElsewhereLater(t *testing.T) {
	o := &elsewhere{}
	require.NoError(t, o.Open(o, nil))
	start := time.Now()
	o.CloseLater()
	time.Sleep(20 * Retry)
	tries := o.tries.Load()
	assert.LessOrEqual(t, tries, 1+int32(time.Since(start)/Retry))
	o.free.Store(true)
	assert.Eventually(t, Idle, time.Minute, time.Millisecond)
}

// refusing is destroyed elsewhere, and that fails.
type refusing struct {
	Handle
	queue Queue
	err   error
}

func (o *refusing) Kind() string { return "refusing" }

func (o *refusing) Destroy(wait bool) error {
	if !wait {
		return &Elsewhere{&o.queue}
	}
	return o.err
}

// TestElsewhereFails: the error of a destruction that is made elsewhere is reported.
func TestElsewhereFails(t *testing.T) {
	reports := make(chan error, 1)
	OnError(func(err error) { reports <- err })
	defer OnError(nil)
	o := &refusing{err: errors.New("refused")}
	require.NoError(t, o.Open(o, nil))
	o.CloseLater()
	select {
	case err := <-reports:
		assert.Equal(t, o.err, err)
	case <-time.After(time.Minute):
		t.Error("nothing is reported")
	}
}

// TestUntracked: no leak is reported of an object that belongs to another one.
func TestUntracked(t *testing.T) {
	reports := make(chan error, 1)
	OnError(func(err error) { reports <- err })
	defer OnError(nil)
	TrackLeaks(true)
	defer TrackLeaks(false)
	o := live(t, nil)
	o.Untracked()
	owned(o)
	runtime.GC()
	require.Eventually(t, o.gone, time.Minute, time.Millisecond)
	require.Eventually(t, Idle, time.Minute, time.Millisecond)
	assert.Empty(t, reports)
}
