//go:build !cudabind_lockorder

package safe

import "sync"

// A mutex is a lock of a rank.
type mutex[R rank] struct{ sync.Mutex }

// handOver lets another goroutine unlock the mutex, once it has called takeOver.
func (m *mutex[R]) handOver() {}
func (m *mutex[R]) takeOver() {}
