//go:build cudabind_lockorder

package safe

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A mutex is a lock with a rank. It panics if the order of ranks is violated.
type mutex[R rank] struct{ Mutex sync.Mutex }

// held holds the locks of each goroutine.
var held = struct {
	sync.Mutex
	by map[int64][]heldLock
}{by: map[int64][]heldLock{}}

type heldLock struct {
	mutex any
	rank  int
}

func (m *mutex[R]) Lock() {
	m.mayWait()
	m.Mutex.Lock()
	var r R
	noteLocked(m, r.rank())
}

func (m *mutex[R]) mayWait() {
	var r R
	mayLock(r.rank())
}

// TryLock never waits, and so need not follow the order.
func (m *mutex[R]) TryLock() bool {
	if !m.Mutex.TryLock() {
		return false
	}
	var r R
	noteLocked(m, r.rank())
	return true
}

func (m *mutex[R]) Unlock() {
	noteUnlocked(m)
	m.Mutex.Unlock()
}

// A second is a mutex whose rank is not compared.
type second[R rank] struct{ *mutex[R] }

func (m second[R]) Lock() {
	m.mayWait()
	m.Mutex.Lock()
	var r R
	noteLocked(m.mutex, r.rank())
}

func (m second[R]) mayWait() {
	held.Lock()
	defer held.Unlock()
	for _, l := range held.by[goroutine()] {
		if _, inside := l.mutex.(*gate); inside {
			panic("cuda: lock order violated: a stream is locked inside of a gate")
		}
	}
}

// second returns the mutex for a caller that holds another one of the same rank, and
// orders the two itself.
func (m *mutex[R]) second() second[R] { return second[R]{m} }

// handOver lets another goroutine unlock the mutex, after it has called takeOver.
func (m *mutex[R]) handOver() { noteUnlocked(m) }

func (m *mutex[R]) takeOver() {
	var r R
	noteLocked(m, r.rank())
}

// mayWait panics if a wait for mu violates the order, also where it is free.
func mayWait(mu locker) {
	if ranked, ok := mu.(interface{ mayWait() }); ok && !rt.InCallback() { // where lock never waits
		ranked.mayWait()
	}
}

// entered and left note that the goroutine is inside of a gate. A capture that begins locks its
// stream and then waits for it, so it counts as a lock of that rank.
func (g *gate) entered() { noteLocked(g, streamRank{}.rank()) }
func (g *gate) left()    { noteUnlocked(g) }

func mayLock(rank int) {
	held.Lock()
	defer held.Unlock()
	locks := held.by[goroutine()]
	paired := false
	for _, l := range locks {
		paired = paired || l.rank == pairRank{}.rank()
	}
	for _, l := range locks {
		if l.rank > rank || l.rank == rank && !(paired && rank == graphRank{}.rank()) {
			panic(fmt.Sprintf("cuda: lock order violated: a %T is locked, and a lock of rank %d is taken", l.mutex, rank))
		}
	}
}

func noteLocked(m any, rank int) {
	held.Lock()
	defer held.Unlock()
	g := goroutine()
	held.by[g] = append(held.by[g], heldLock{m, rank})
}

// noteUnlocked removes a lock of this goroutine. A lock that was handed over has no
// owner.
func noteUnlocked(m any) {
	held.Lock()
	defer held.Unlock()
	g := goroutine()
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

// goroutine returns the number of this goroutine, which only its stack trace contains.
func goroutine() int64 {
	var stack [64]byte
	text := bytes.TrimPrefix(stack[:runtime.Stack(stack[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(text, []byte(" "))
	n, _ := strconv.ParseInt(string(number), 10, 64)
	return n
}
