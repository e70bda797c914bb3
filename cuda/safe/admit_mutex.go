package safe

// Locks are taken in the order of their ranks, so that no two goroutines deadlock. Only
// the holder of pairs may lock two graphs. Inside of a gate, no stream is locked. With the
// build tag cudabind_lockorder, every lock checks the order.
type (
	turnRank   struct{} // backlog.turn: a wait for room in a stream's queue
	streamRank struct{} // queue.mu: calls on a stream
	nodeRank   struct{} // funcNode: parameters of nodes
	pairRank   struct{} // pairs
	graphRank  struct{} // graphCore.mu: a graph, its child graphs, and the capture into it
	execRank   struct{} // execCore.mu: an executable
	eventRank  struct{} // eventCore.mu: the capture in which an event was recorded
	placeRank  struct{} // graphPlace.mu: memory that launches allocate
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
func (placeRank) rank() int  { return 8 }

// A locker is a mutex of any rank.
type locker interface {
	TryLock() bool
	Lock()
}
