//go:build cudabind_lockorder

package admit

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A Mutex is a lock with a rank. It panics if the order is violated.
type Mutex[R Rank] struct{ Mutex sync.Mutex }

// A Leaf is a lock under which no Mutex is waited for: the Mutex panics.
type Leaf struct{ Mutex sync.Mutex }

// held holds the locks of each goroutine.
var held = struct {
	sync.Mutex // a leaf: of the maps
	by         map[int64][]heldLock
}{by: map[int64][]heldLock{}}

type heldLock struct {
	mutex any
	position
}

// A position is that of a lock in the order.
type position struct {
	rank    int
	address uintptr // among those of a rank
}

// last is the position of what no lock of its rank comes after.
const last = ^uintptr(0)

// leaves is the rank of a Leaf.
const leaves = math.MaxInt

func (p position) after(o position) bool {
	return cmp.Or(cmp.Compare(p.rank, o.rank), cmp.Compare(p.address, o.address)) > 0
}

func (m *Mutex[R]) position() position {
	var r R
	return position{r.rank(), uintptr(unsafe.Pointer(m))}
}

func (m *Mutex[R]) Lock() {
	m.mayWait()
	m.Mutex.Lock()
	noteLocked(m, m.position())
}

func (m *Mutex[R]) mayWait() {
	held.Lock()
	defer held.Unlock()
	for _, l := range held.by[Goroutine()] {
		if !m.position().after(l.position) {
			panic(fmt.Sprintf("cuda: lock order violated: a %T is locked, and then a %T", l.mutex, m))
		}
	}
}

// TryLock never waits, and so need not follow the order.
func (m *Mutex[R]) TryLock() bool {
	if !m.Mutex.TryLock() {
		return false
	}
	noteLocked(m, m.position())
	return true
}

func (m *Mutex[R]) Unlock() {
	noteUnlocked(m)
	m.Mutex.Unlock()
}

func (l *Leaf) Lock() {
	l.Mutex.Lock()
	noteLocked(l, position{leaves, last})
}

func (l *Leaf) TryLock() bool {
	if !l.Mutex.TryLock() {
		return false
	}
	noteLocked(l, position{leaves, last})
	return true
}

func (l *Leaf) Unlock() {
	noteUnlocked(l)
	l.Mutex.Unlock()
}

// HandOver lets another goroutine unlock the mutex, after that one has called TakeOver.
func (m *Mutex[R]) HandOver() { noteUnlocked(m) }

func (m *Mutex[R]) TakeOver() { noteLocked(m, m.position()) }

// MayWait panics if a wait for mu violates the order of ranks, also where mu is free.
func MayWait(mu Locker) {
	if ranked, ok := mu.(interface{ mayWait() }); ok && !rt.InCallback() { // where lock never waits
		ranked.mayWait()
	}
}

// entered and left note that the goroutine is inside of a gate. A capture that begins locks its
// stream and then waits for the gate, so it counts as a lock of the stream's rank.
func (g *Gate) entered() { noteLocked(g, position{StreamRank{}.rank(), last}) }
func (g *Gate) left()    { noteUnlocked(g) }

func noteLocked(m any, p position) {
	held.Lock()
	defer held.Unlock()
	g := Goroutine()
	held.by[g] = append(held.by[g], heldLock{m, p})
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
