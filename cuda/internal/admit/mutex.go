package admit

// The ranks of package safe's locks. They are taken in this order, so that no two goroutines deadlock. Only the
// holder of a PairRank may lock two graphs. Inside of a [Gate], no stream is locked.
type (
	TurnRank   struct{} // backlog.turn: a wait for room in a stream's queue
	StreamRank struct{} // queue.mu: calls on a stream
	NodeRank   struct{} // funcNode: parameters of nodes
	PairRank   struct{} // pairs
	GraphRank  struct{} // graphCore.mu: a graph, its child graphs, and the capture into it
	ExecRank   struct{} // execCore.mu: an executable
	EventRank  struct{} // eventCore.mu: the capture in which an event was recorded
	PlaceRank  struct{} // graphPlace.mu: memory that launches allocate
)

// A Rank is the place of a kind of lock in the order.
type Rank interface{ rank() int }

func (TurnRank) rank() int   { return 1 }
func (StreamRank) rank() int { return 2 }
func (NodeRank) rank() int   { return 3 }
func (PairRank) rank() int   { return 4 }
func (GraphRank) rank() int  { return 5 }
func (ExecRank) rank() int   { return 6 }
func (EventRank) rank() int  { return 7 }
func (PlaceRank) rank() int  { return 8 }

// A Locker is a [Mutex] of any rank.
type Locker interface {
	TryLock() bool
	Lock()
}
