package collective

import (
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
)

// localRanks are the ranks of one identifier in this process, of one Open or several Join, and those that were split from
// them. NCCL releases them together, with the last one, and uses what was registered with any of them until then.
type localRanks struct {
	id         nccl.NcclUniqueId
	unreleased int             // ranks that NCCL has not released, or has yet to make
	kept       []*registration // of ranks that have ended
}

var allLocal struct {
	sync.Mutex // a leaf: guards by, and what is in it
	by         map[nccl.NcclUniqueId]*localRanks
}

// count adds the rank to those of an identifier, before another one of them can end. mu is held.
func (c *core) count(id nccl.NcclUniqueId) {
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

// end notes the end of a rank, whose registrations left NCCL has not ended. It returns those of all ranks if NCCL has
// released all. A rank that NCCL has not released stays for good, because nothing calls NCCL for it again: so do the
// registrations of all ranks, which NCCL may use for the others.
func (l *localRanks) end(left []*registration, released bool) []*registration {
	allLocal.Lock()
	defer allLocal.Unlock()
	l.kept = append(l.kept, left...)
	if released {
		l.unreleased--
	}
	if l.unreleased > 0 {
		return nil
	}
	delete(allLocal.by, l.id)
	return l.kept
}
