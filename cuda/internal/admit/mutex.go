package admit

import (
	"cmp"
	"unsafe"
)

// The ranks of package safe's locks. They are taken in this order, and several of one rank by [Order], so that no two
// goroutines deadlock. Inside of a [Gate], no stream is locked. Every other lock is a [Leaf].
type (
	OwnerRank  struct{} // arenaCore.mu, scopeCore.mu: an arena or a scope, during its calls on a stream
	TurnRank   struct{} // backlog.turn: a wait for room in a stream's queue
	StreamRank struct{} // queue.mu: calls on a stream
	GraphRank  struct{} // graphCore.mu: a graph, its child graphs, and the capture into it
	ExecRank   struct{} // execCore.mu: an executable
)

// A Rank is the place of a kind of lock in the order.
type Rank interface{ rank() int }

func (OwnerRank) rank() int  { return 1 }
func (TurnRank) rank() int   { return 2 }
func (StreamRank) rank() int { return 3 }
func (GraphRank) rank() int  { return 4 }
func (ExecRank) rank() int   { return 5 }

// A Locker is a [Mutex] of any rank, or a [Leaf].
type Locker interface {
	TryLock() bool
	Lock()
}

// Order compares two mutexes of a rank: the lesser is locked first. It compares their addresses, which Go never
// changes.
func Order[R Rank](a, b *Mutex[R]) int {
	return cmp.Compare(uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)))
}
