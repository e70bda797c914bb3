//go:build !cudabind_lockorder

package admit

import "sync"

// A Mutex is a lock with a rank.
type Mutex[R Rank] struct{ sync.Mutex }

// A Leaf is a lock under which no Mutex is waited for.
type Leaf = sync.Mutex

// HandOver lets another goroutine unlock the mutex, after that one has called TakeOver.
func (m *Mutex[R]) HandOver() {}

// TakeOver makes this goroutine the one that unlocks the mutex.
func (m *Mutex[R]) TakeOver() {}

// MayWait checks that a wait for mu follows the order of ranks, also where mu is free.
func MayWait(Locker) {}

func (g *Gate) entered() {}
func (g *Gate) left()    {}
