//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package activity

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answer is what CUPTI gets: memory that stays where it is.
type answer struct {
	buffer        unsafe.Pointer
	size, records uint64
}

// request asks for a buffer, as CUPTI does.
func request(a *answer) bool {
	a.size, a.records = 1, 1
	call(Requested(), [5]uintptr{uintptr(unsafe.Pointer(&a.buffer)), uintptr(unsafe.Pointer(&a.size)), uintptr(unsafe.Pointer(&a.records))})
	return a.buffer != nil
}

func complete(a *answer, valid uint64) {
	call(Completed(), [5]uintptr{0, 0, uintptr(a.buffer), uintptr(a.size), uintptr(valid)})
}

// TestBuffers: threads take buffers and give them back, while a goroutine empties them. Nothing is lost.
func TestBuffers(t *testing.T) {
	require.NoError(t, Open(Most))
	var total atomic.Uint64
	var got uint64
	drain := func() {
		Filled(func(p unsafe.Pointer, n uint64) {
			assert.Equal(t, n, *(*uint64)(p))
			got += n
		})
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			a := new(answer)
			var pins runtime.Pinner
			pins.Pin(a)
			defer pins.Unpin()
			for i := range 5000 {
				if !request(a) {
					runtime.Gosched()
					continue
				}
				if a.size != Size || a.records != 0 {
					t.Errorf("size %d, records %d", a.size, a.records)
				}
				n := uint64(8 + g + i)
				*(*uint64)(a.buffer) = n
				complete(a, n)
				total.Add(n)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for ended := false; !ended; drain() {
		select {
		case <-done:
			ended = true
		default:
		}
	}
	assert.Equal(t, total.Load(), got)
	assert.Zero(t, Lent())
}

// TestLimit: there are no more buffers than Open has allowed, also while CUPTI still has others, and who finds none is
// counted.
func TestLimit(t *testing.T) {
	all := make([]answer, 10)
	var pins runtime.Pinner
	pins.Pin(&all[0])
	defer pins.Unpin()
	take := func(count, want int) {
		before := Starved()
		got := 0
		for i := range count {
			if request(&all[i]) {
				got++
			}
		}
		assert.Equal(t, want, got)
		assert.EqualValues(t, count-want, Starved()-before)
		assert.Equal(t, want, Lent())
	}
	giveBack := func(count int) {
		for i := range count {
			complete(&all[i], 0)
		}
		Filled(func(unsafe.Pointer, uint64) { t.Error("an empty buffer") })
	}
	require.NoError(t, Open(3))
	take(5, 3)
	giveBack(3)
	require.NoError(t, Open(8))
	take(8, 8)
	require.NoError(t, Open(2))
	assert.False(t, request(&all[9]), "CUPTI has both, and more")
	giveBack(4) // both, and two that are over
	assert.Equal(t, 4, Lent())
	require.NoError(t, Open(Most))
	assert.Equal(t, 4, Lent(), "what CUPTI has stays its own")
	giveBackRest := all[4:8]
	for i := range giveBackRest {
		complete(&giveBackRest[i], 0)
	}
	Filled(func(unsafe.Pointer, uint64) {})
	assert.Zero(t, Lent())
	call(Ignored(), [5]uintptr{})
}

// TestForeignBuffer: a buffer that other code has given CUPTI before changes nothing.
func TestForeignBuffer(t *testing.T) {
	require.NoError(t, Open(Most))
	other := make([]byte, 16)
	var pins runtime.Pinner
	pins.Pin(&other[0])
	defer pins.Unpin()
	filled, valid := s.filled.Load(), s.valid
	for _, buffer := range []unsafe.Pointer{unsafe.Pointer(&other[0]), nil} {
		complete(&answer{buffer: buffer}, 16)
	}
	assert.Equal(t, filled, s.filled.Load())
	assert.Equal(t, valid, s.valid)
	assert.Equal(t, make([]byte, 16), other)
}
