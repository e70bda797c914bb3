//go:build cudabind_lockorder

package admit

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A Mutex is a lock with a rank. It panics if the order of ranks is violated.
type Mutex[R Rank] struct{ Mutex sync.Mutex }

// held holds the locks of each goroutine.
var held = struct {
	sync.Mutex
	by map[int64][]heldLock
}{by: map[int64][]heldLock{}}

type heldLock struct {
	mutex any
	rank  int
}

func (m *Mutex[R]) Lock() {
	m.mayWait()
	m.Mutex.Lock()
	var r R
	noteLocked(m, r.rank())
}

func (m *Mutex[R]) mayWait() {
	var r R
	mayLock(r.rank())
}

// TryLock never waits, and so need not follow the order.
func (m *Mutex[R]) TryLock() bool {
	if !m.Mutex.TryLock() {
		return false
	}
	var r R
	noteLocked(m, r.rank())
	return true
}

func (m *Mutex[R]) Unlock() {
	noteUnlocked(m)
	m.Mutex.Unlock()
}

// A Second is a Mutex whose rank is not compared.
type Second[R Rank] struct{ *Mutex[R] }

func (m Second[R]) Lock() {
	m.mayWait()
	m.Mutex.Mutex.Lock() // not the ranked one
	var r R
	noteLocked(m.Mutex, r.rank())
}

func (m Second[R]) mayWait() {
	held.Lock()
	defer held.Unlock()
	for _, l := range held.by[Goroutine()] {
		if _, inside := l.mutex.(*Gate); inside {
			panic("cuda: lock order violated: a stream is locked inside of a gate")
		}
	}
}

// Second returns the mutex for a caller that holds another one of the same rank, and orders the two itself.
func (m *Mutex[R]) Second() Second[R] { return Second[R]{m} }

// HandOver lets another goroutine unlock the mutex, after that one has called TakeOver.
func (m *Mutex[R]) HandOver() { noteUnlocked(m) }

func (m *Mutex[R]) TakeOver() {
	var r R
	noteLocked(m, r.rank())
}

// MayWait panics if a wait for mu violates the order of ranks, also where mu is free.
func MayWait(mu Locker) {
	if ranked, ok := mu.(interface{ mayWait() }); ok && !rt.InCallback() { // where lock never waits
		ranked.mayWait()
	}
}

// entered and left note that the goroutine is inside of a gate. A capture that begins locks its
// stream and then waits for the gate, so it counts as a lock of the stream's rank.
func (g *Gate) entered() { noteLocked(g, StreamRank{}.rank()) }
func (g *Gate) left()    { noteUnlocked(g) }

func mayLock(Rank int) {
	held.Lock()
	defer held.Unlock()
	locks := held.by[Goroutine()]
	paired := false
	for _, l := range locks {
		paired = paired || l.rank == PairRank{}.rank()
	}
	for _, l := range locks {
		if l.rank > Rank || l.rank == Rank && !(paired && Rank == GraphRank{}.rank()) {
			panic(fmt.Sprintf("cuda: lock order violated: a %T is locked, and a lock of rank %d is taken", l.mutex, Rank))
		}
	}
}

func noteLocked(m any, Rank int) {
	held.Lock()
	defer held.Unlock()
	g := Goroutine()
	held.by[g] = append(held.by[g], heldLock{m, Rank})
}

// noteUnlocked removes a lock of this goroutine. A lock that was handed over has no
// owner.
func noteUnlocked(m any) {
	held.Lock()
	defer held.Unlock()
	g := Goroutine()
	for i, l := range held.by[g] {
		if l.mutex == m {
			held.by[g] = append(held.by[g][:i:i], held.by[g][i+1:]...)
			break
		}
	}
	if len(held.by[g]) == 0 {
		delete(held.by, g)
	}
}

// Goroutine returns the number of this goroutine, which only its stack trace contains.
func Goroutine() int64 {
	var stack [64]byte
	text := bytes.TrimPrefix(stack[:runtime.Stack(stack[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(text, []byte(" "))
	n, _ := strconv.ParseInt(string(number), 10, 64)
	return n
}
