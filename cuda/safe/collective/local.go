package collective

import (
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
)

// localRanks are the ranks of one identifier in this process, of one Open or several Join, and those that were split from
// them. NCCL releases them together, with the last one, and uses what was registered with any of them until then.
type localRanks struct {
	id         nccl.NcclUniqueId
	unreleased int
	kept       []*registration // of the others
}

var allLocal struct {
	sync.Mutex // a leaf: guards by, and what is in it
	by         map[nccl.NcclUniqueId]*localRanks
}

// count adds the rank to those of an identifier if NCCL has made it, perhaps in a call that has failed. mu is held.
func (c *core) count(id nccl.NcclUniqueId) {
	if *c.raw == 0 {
		return
	}
	allLocal.Lock()
	defer allLocal.Unlock()
	l := allLocal.by[id]
	if l == nil {
		l = &localRanks{id: id}
		if allLocal.by == nil {
			allLocal.by = map[nccl.NcclUniqueId]*localRanks{}
		}
		allLocal.by[id] = l
	}
	l.unreleased++
	c.local = l
}

// release removes a rank, whose registrations NCCL has not ended. It returns those of all ranks with the last one.
func (l *localRanks) release(left []*registration) []*registration {
	allLocal.Lock()
	defer allLocal.Unlock()
	l.kept = append(l.kept, left...)
	if l.unreleased--; l.unreleased > 0 {
		return nil
	}
	delete(allLocal.by, l.id)
	return l.kept
}
