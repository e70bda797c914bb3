package library

import (
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// sharedStreams is how many streams have a workspace of those that all Objects of a context
// share.
const sharedStreams = 16

// shared are the workspaces of each context that has Objects without their own.
var shared = struct {
	sync.Mutex // a leaf
	of         map[driver.CUcontext]*workspaces
}{of: map[driver.CUcontext]*workspaces{}}

// share returns the workspaces of a context, until unshare.
func share(x *safe.Context) (*workspaces, error) {
	if w := found(x); w != nil {
		return w, nil
	}
	made, err := newWorkspaces(x, 0, sharedStreams)
	if err != nil {
		return nil, err
	}
	if w := found(x); w != nil { // another goroutine was faster
		return w, made.close()
	}
	shared.Lock()
	defer shared.Unlock()
	made.key, made.users = x.Raw(), 1
	shared.of[made.key] = made
	return made, nil
}

// found returns workspaces that are there and usable, with one user more.
func found(x *safe.Context) *workspaces {
	shared.Lock()
	defer shared.Unlock()
	w := shared.of[x.Raw()]
	if w == nil || w.lost() || !w.x.Equal(x) { // a new context may have the handle of one that was reset
		return nil
	}
	w.users++
	return w
}

// unshare closes the workspaces after their last user.
func (w *workspaces) unshare() error {
	shared.Lock()
	w.users--
	last := w.users == 0
	if last && shared.of[w.key] == w {
		delete(shared.of, w.key)
	}
	shared.Unlock()
	if !last {
		return nil
	}
	return w.close()
}
