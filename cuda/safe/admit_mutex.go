package safe

// Locks are taken in the order of their ranks, so that no two goroutines wait for
// each other. Two graphs are locked by whoever holds pairs. The build tag
// cudabind_lockorder checks the order at every lock.
type (
	turnRank   struct{} // backlog.turn: who waits for room in a stream's queue
	streamRank struct{} // queue.mu: calls on a stream
	nodeRank   struct{} // coldWork: parameters of nodes
	pairRank   struct{} // pairs
	graphRank  struct{} // graphCore.mu: a graph, its parts, and the capture into it
	execRank   struct{} // execCore.mu: an executable
	eventRank  struct{} // eventCore.mu: which capture an event stands for
)

// A rank is the place of a kind of lock in the order.
type rank interface{ rank() int }

func (turnRank) rank() int   { return 1 }
func (streamRank) rank() int { return 2 }
func (nodeRank) rank() int   { return 3 }
func (pairRank) rank() int   { return 4 }
func (graphRank) rank() int  { return 5 }
func (execRank) rank() int   { return 6 }
func (eventRank) rank() int  { return 7 }

// A locker is a mutex of any rank.
type locker interface {
	TryLock() bool
	Lock()
}
