//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// registry finds the memory at an address, for programs that pass addresses around. Any goroutine may use it.
type registry struct {
	mutex   sync.RWMutex
	buffers []*safe.Buffer[byte] // in the order of their addresses
}

// alloc allocates memory, and returns its address.
func (r *registry) alloc(x *safe.Context, bytes int) (driver.CUdeviceptr, error) {
	b, err := safe.NewBuffer[byte](x, bytes)
	if err != nil {
		return 0, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.buffers = slices.Insert(r.buffers, r.after(b.Raw()), b)
	return b.Raw(), nil
}

// at returns the memory from an address on, to the end of its allocation.
func (r *registry) at(address driver.CUdeviceptr) (*safe.Buffer[byte], error) {
	r.mutex.RLock()
	defer r.mutex.RUnlock()
	if i := r.after(address); i > 0 {
		b := r.buffers[i-1]
		if offset := uint64(address - b.Raw()); offset < b.Size() {
			return b.Slice(int(offset), b.Len())
		}
	}
	return nil, fmt.Errorf("there is no memory at %#x", address)
}

// free frees memory by its address. Package safe waits until no work uses it.
func (r *registry) free(address driver.CUdeviceptr) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	i := r.after(address) - 1
	if i < 0 || r.buffers[i].Raw() != address {
		return fmt.Errorf("no memory begins at %#x", address)
	}
	b := r.buffers[i]
	r.buffers = slices.Delete(r.buffers, i, i+1)
	return b.Close()
}

// after returns how many buffers begin at an address or before.
func (r *registry) after(address driver.CUdeviceptr) int {
	i, found := slices.BinarySearchFunc(r.buffers, address, func(b *safe.Buffer[byte], a driver.CUdeviceptr) int {
		return cmp.Compare(b.Raw(), a)
	})
	if found {
		i++
	}
	return i
}

// launchAddAt launches a kernel with addresses, as the glue did: the registry turns them into arguments.
func launchAddAt(r *registry, s *safe.Stream, add *safe.Kernel, a, b, sum driver.CUdeviceptr, n uint32) error {
	in1, err1 := r.at(a)
	in2, err2 := r.at(b)
	out, err3 := r.at(sum)
	return cmp.Or(err1, err2, err3,
		add.Launch(s, safe.Threads(int(n)), in1.Arg(), in2.Arg(), out.Arg(), safe.Val(n)))
}

func TestRegistry(t *testing.T) {
	if !onGPU {
		require.NoError(t, registerAdd())
	}
	x := open(t)
	s, add := newStream(t, x), kernel(t, x, "add")
	var r registry
	const n = 100
	var p [3]driver.CUdeviceptr
	for i := range p {
		var err error
		p[i], err = r.alloc(x, 4*n)
		require.NoError(t, err)
		b, err := r.at(p[i])
		require.NoError(t, err)
		whole, err := safe.Cast[float32](b)
		require.NoError(t, err)
		require.NoError(t, whole.Fill([]float32{1, 2, 7}[i]))
	}
	require.NoError(t, launchAddAt(&r, s, add, p[0], p[1]+40, p[2]+80, 50))
	b, err := r.at(p[2])
	require.NoError(t, err)
	got, err := safe.Cast[float32](b)
	require.NoError(t, err)
	for i, v := range values(t, got) {
		want := float32(7) // as it was
		if i >= 20 && i < 70 {
			want = 3 // the sum
		}
		assert.Equal(t, want, v, "%d", i)
	}
	for name, address := range map[string]driver.CUdeviceptr{"null": 0, "before all": min(p[0], p[1], p[2]) - 1, "far behind": 1 << 62} {
		_, err := r.at(address)
		assert.ErrorContains(t, err, "there is no memory at", name)
		assert.ErrorContains(t, launchAddAt(&r, s, add, p[0], address, p[2], n), "there is no memory at", name)
	}
	assert.ErrorContains(t, r.free(p[0]+4), "no memory begins at")
	for _, a := range p {
		require.NoError(t, r.free(a))
		_, err := r.at(a)
		assert.Error(t, err)
	}
}
