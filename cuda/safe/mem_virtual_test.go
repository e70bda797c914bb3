//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests reserve addresses and map memory. They run on the simulated driver and on a
// GPU; TestVirtualProcesses needs a device that can share memory, TestVirtualDevices two
// devices.

package safe_test

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// virtual returns the granularity, or skips the test if the device has no virtual memory.
func virtual(t testing.TB, x *safe.Context) uint64 {
	t.Helper()
	n, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
	require.NoError(t, err)
	if n == 0 {
		t.Skip("the device has no virtual memory")
	}
	minimum, recommended, err := x.Granularity(safe.PhysicalMemoryOptions{})
	require.NoError(t, err)
	require.NotZero(t, minimum)
	require.Zero(t, recommended%minimum)
	return minimum
}

func reserve(t testing.TB, x *safe.Context, size uint64) *safe.AddressRange {
	t.Helper()
	r, err := safe.ReserveAddress(x, size, safe.ReserveOptions{})
	require.NoError(t, err)
	closing(t, r)
	return r
}

func physical(t testing.TB, x *safe.Context, size uint64, o safe.PhysicalMemoryOptions) *safe.PhysicalMemory {
	t.Helper()
	p, err := safe.NewPhysicalMemory(x, size, o)
	require.NoError(t, err)
	closing(t, p)
	return p
}

// mapped maps new memory and gives x's device access.
func mapped(t testing.TB, x *safe.Context, r *safe.AddressRange, offset, size uint64) {
	t.Helper()
	require.NoError(t, r.Map(offset, physical(t, x, size, safe.PhysicalMemoryOptions{})))
	require.NoError(t, r.SetAccess(offset, size, readWrite))
}

func mappedBuffer[T any](t testing.TB, r *safe.AddressRange, offset uint64, n int) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.NewMappedBuffer[T](r, offset, n)
	require.NoError(t, err)
	closing(t, b)
	return b
}

// TestVirtualMemory: copies, memsets and launches use mapped memory, also across
// mappings, and the same memory at two addresses.
func TestVirtualMemory(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	s, fill := stream(t, x), kernel(t, x, "fill")
	r := reserve(t, x, 3*granule+1)
	assert.EqualValues(t, 4*granule, r.Size(), "rounded up")
	assert.NotZero(t, r.Raw())
	p := physical(t, x, 1, safe.PhysicalMemoryOptions{})
	assert.EqualValues(t, granule, p.Size())
	assert.NotZero(t, p.Raw())
	require.NoError(t, r.Map(0, p))
	mapped(t, x, r, granule, granule)
	require.NoError(t, r.Map(3*granule, p), "once more")
	require.NoError(t, p.Close(), "mapped memory stays")
	for _, at := range []uint64{0, 3 * granule} {
		require.NoError(t, r.SetAccess(at, granule, readWrite))
	}
	n := int(granule / 2) // in two mappings
	all := mappedBuffer[float32](t, r, 0, n)
	assert.EqualValues(t, 2*granule, all.Size())
	assert.Equal(t, r.Raw(), all.Raw())
	require.NoError(t, all.CopyFromHost(count(n)))
	again := mappedBuffer[float32](t, r, 3*granule, n/2)
	got := make([]float32, n)
	require.NoError(t, again.CopyToHost(got[:n/2]))
	assert.Equal(t, count(n/2), got[:n/2], "the same memory")
	require.NoError(t, fill.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(7)), all.Arg()))
	require.NoError(t, again.CopyToHost(got[:n/2]), "after the work on the other addresses")
	assert.EqualValues(t, 7, got[n/2-1])
	require.NoError(t, all.FillAsync(s, 8))
	part, err := all.Slice(n/2-1, n/2+1)
	require.NoError(t, err)
	require.NoError(t, part.Fill(0))
	plain := buffer[float32](t, x, n)
	require.NoError(t, plain.CopyFromAsync(s, all))
	require.NoError(t, plain.CopyToHost(got))
	assert.Equal(t, []float32{8, 0, 0, 8}, got[n/2-2:n/2+2])

	borrowed, err := safe.BorrowBuffer[float32](x, r.Raw(), 10, r)
	require.NoError(t, err)
	require.NoError(t, borrowed.Close())
	access, err := r.Access(0, x.Device())
	require.NoError(t, err)
	assert.Equal(t, readWrite, access)
	_, err = r.Access(2*granule, x.Device())
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
}

// TestVirtualGrows: a range grows without changing addresses.
func TestVirtualGrows(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	r := reserve(t, x, 64*granule)
	mapped(t, x, r, 0, granule)
	n := int(granule / 4)
	first := mappedBuffer[float32](t, r, 0, n)
	require.NoError(t, first.CopyFromHost(count(n)))
	_, err := safe.NewMappedBuffer[float32](r, 0, 2*n)
	assert.ErrorIs(t, err, safe.ErrRange)
	mapped(t, x, r, granule, 2*granule)
	all := mappedBuffer[float32](t, r, 0, 3*n)
	assert.Equal(t, first.Raw(), all.Raw())
	rest, err := all.Slice(n, 3*n)
	require.NoError(t, err)
	require.NoError(t, rest.Fill(-1))
	got := make([]float32, 3*n)
	require.NoError(t, all.CopyToHost(got))
	assert.Equal(t, count(n), got[:n])
	assert.EqualValues(t, -1, got[n])
}

func TestVirtualRefusals(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	r := reserve(t, x, 8*granule)
	p, two := physical(t, x, granule, safe.PhysicalMemoryOptions{}), physical(t, x, 2*granule, safe.PhysicalMemoryOptions{})
	require.NoError(t, r.Map(granule, two))
	require.NoError(t, r.Map(4*granule, p))
	require.NoError(t, r.SetAccess(granule, 2*granule, readWrite))
	closed, err := safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	require.NoError(t, closed.Close())
	open := mappedBuffer[byte](t, r, granule, 100)
	made := func(b *safe.Buffer[uint64], err error) error { return err }
	huge := safe.PhysicalMemoryOptions{Location: safe.DeviceLocation(x.Device())}
	huge.Location.ID += math.MaxUint32 + 1
	for _, c := range []struct {
		name string
		err  error
		want error
		says string
	}{
		{"offset in between", r.Map(granule/2, p), safe.ErrInvalidArgument, "multiple of the granularity"},
		{"after the end", r.Map(8*granule, p), safe.ErrRange, ""},
		{"over the end", r.Map(7*granule, two), safe.ErrRange, ""},
		{"more than the range", r.Map(0, physical(t, x, 9*granule, safe.PhysicalMemoryOptions{})), safe.ErrRange, "exceed the range"},
		{"far after the end", r.Map(0-granule, p), safe.ErrRange, ""},
		{"mapped already", r.Map(granule, p), safe.ErrRange, "mapped already"},
		{"half mapped already", r.Map(0, two), safe.ErrRange, "mapped already"},
		{"closed memory", r.Map(0, closed), safe.ErrClosed, ""},
		{"unmap nothing", r.Unmap(5*granule, granule), safe.ErrRange, "nothing is mapped"},
		{"unmap a part", r.Unmap(granule, granule), safe.ErrRange, "contain only a part"},
		{"unmap after the end", r.Unmap(granule, 8*granule), safe.ErrRange, ""},
		{"access to nothing", r.SetAccess(0, granule, readWrite), safe.ErrRange, "only 0"},
		{"access to a part", r.SetAccess(2*granule, granule, readWrite), safe.ErrRange, "contain only a part"},
		{"access to no bytes", r.SetAccess(granule, 0, readWrite), safe.ErrRange, ""},
		{"access over a hole", r.SetAccess(granule, 4*granule, readWrite), safe.ErrRange, ""},
		{"access taken from a buffer", r.SetAccess(granule, 2*granule, 0), safe.ErrInvalidArgument, "some are open"},
		{"buffer of nothing", made(safe.NewMappedBuffer[uint64](r, 0, 1)), safe.ErrRange, "only 0 are mapped"},
		{"buffer of too much", made(safe.NewMappedBuffer[uint64](r, granule, int(granule))), safe.ErrRange, ""},
		{"buffer after the end", made(safe.NewMappedBuffer[uint64](r, 8*granule, 1)), safe.ErrRange, ""},
		{"buffer without access", made(safe.NewMappedBuffer[uint64](r, 4*granule, 1)), safe.ErrInvalidArgument, "call AddressRange.SetAccess"},
		{"buffer not aligned", made(safe.NewMappedBuffer[uint64](r, granule+4, 1)), safe.ErrInvalidArgument, "aligned"},
		{"buffer of fewer than no values", made(safe.NewMappedBuffer[uint64](r, granule, -1)), safe.ErrRange, ""},
		{"alignment", func() error {
			_, err := safe.ReserveAddress(x, 1, safe.ReserveOptions{Alignment: 3})
			return err
		}(), safe.ErrInvalidArgument, "power of two"},
		{"no addresses", func() error { _, err := safe.ReserveAddress(x, 0, safe.ReserveOptions{}); return err }(), safe.ErrRange, ""},
		{"too many addresses", func() error { _, err := safe.ReserveAddress(x, 1<<63, safe.ReserveOptions{}); return err }(), safe.ErrRange, ""},
		{"no memory", func() error { _, err := safe.NewPhysicalMemory(x, 0, safe.PhysicalMemoryOptions{}); return err }(), safe.ErrRange, ""},
		{"too much memory", func() error { _, err := safe.NewPhysicalMemory(x, 1<<50, safe.PhysicalMemoryOptions{}); return err }(), driver.CUDA_ERROR_OUT_OF_MEMORY, ""},
		{"memory at no ID of CUDA", func() error { _, err := safe.NewPhysicalMemory(x, granule, huge); return err }(), safe.ErrInvalidArgument, "not a location"},
		{"granularity at no ID of CUDA", func() error { _, _, err := x.Granularity(huge); return err }(), safe.ErrInvalidArgument, "not a location"},
		{"not shareable", func() error { _, err := p.Export(); return err }(), safe.ErrInvalidArgument, "Shareable"},
		{"no file", func() error { _, err := safe.ImportPhysicalMemory(x, nil, granule); return err }(), safe.ErrInvalidArgument, "no file"},
		{"offset of Access", func() error { _, err := r.Access(r.Size(), x.Device()); return err }(), safe.ErrRange, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.ErrorIs(t, c.err, c.want)
			assert.ErrorContains(t, c.err, c.says)
		})
	}
	require.NoError(t, open.Fill(0))
	require.NoError(t, open.Close())
	require.NoError(t, r.SetAccess(granule, 2*granule, 0), "after the buffer")
	access, err := r.Access(granule, x.Device())
	require.NoError(t, err)
	assert.Zero(t, access)
}

// TestVirtualUnmap: memory is unmapped after the work that uses it, and after the last
// buffer and graph are closed.
func TestVirtualUnmap(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	g := newGate(t, x)
	s, copies := stream(t, x), kernel(t, x, "copy")
	const n = 1000
	r, out := reserve(t, x, 2*granule), buffer[float32](t, x, n)
	mapped(t, x, r, 0, granule)
	b := mappedBuffer[float32](t, r, 0, n)
	require.NoError(t, b.CopyFromHost(count(n)))
	use := func() error { return copies.Launch(s, perValue(n), out.Arg(), b.Arg(), safe.Val(uint32(n))) }
	got := make([]float32, n)

	graph, err := s.Capture(use)
	require.NoError(t, err)
	exec, err := graph.Instantiate()
	require.NoError(t, err)
	g.shut(t, s)
	require.NoError(t, use())
	require.NoError(t, r.Unmap(0, granule), "a buffer shows it")
	assert.ErrorIs(t, r.Map(0, physical(t, x, 1, safe.PhysicalMemoryOptions{})), safe.ErrRange)
	_, err = safe.NewMappedBuffer[byte](r, 0, 1)
	assert.ErrorIs(t, err, safe.ErrRange, "it was unmapped")
	assert.ErrorIs(t, r.SetAccess(0, granule, readWrite), safe.ErrRange, "it was unmapped")
	require.NoError(t, b.Close(), "a graph uses it")
	require.NoError(t, graph.Close())
	g.open()
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, count(n), got)
	require.NoError(t, out.Fill(0))
	require.NoError(t, exec.Launch(s))
	require.NoError(t, exec.Close())
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, count(n), got)
	assert.ErrorIs(t, use(), safe.ErrClosed)
	require.Eventually(t, func() bool { return isUnmapped(t, x, r) }, atOnce, 10*time.Millisecond)

	mapped(t, x, r, 0, granule)
	b = mappedBuffer[float32](t, r, 0, n)
	require.NoError(t, b.CopyFromHost(count(n)))
	g.flag.Data()[0] = 0
	g.shut(t, s)
	require.NoError(t, use())
	require.NoError(t, b.Close())
	over := make(chan error)
	go func() { over <- r.Unmap(0, granule) }()
	g.open()
	require.NoError(t, <-over)
	assert.True(t, isUnmapped(t, x, r), "at once")
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, count(n), got)
}

func isUnmapped(t *testing.T, x *safe.Context, r *safe.AddressRange) bool {
	_, err := r.Access(0, x.Device())
	if err != nil {
		assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	}
	return err != nil
}

// TestVirtualProcesses: another process, which runs this same program, reads and writes
// the memory.
func TestVirtualProcesses(t *testing.T) {
	const child = "CUDABIND_TEST_MEMORY"
	x := open(t, 0)
	granule := virtual(t, x)
	show := func(p *safe.PhysicalMemory) *safe.Buffer[float32] {
		r := reserve(t, x, granule)
		require.NoError(t, r.Map(0, p))
		require.NoError(t, r.SetAccess(0, granule, readWrite))
		return mappedBuffer[float32](t, r, 0, 100)
	}
	got := make([]float32, 100)
	if os.Getenv(child) != "" {
		f := os.NewFile(3, "memory") // the first of ExtraFiles
		defer f.Close()
		p, err := safe.ImportPhysicalMemory(x, f, granule)
		require.NoError(t, err)
		closing(t, p)
		b := show(p)
		require.NoError(t, b.CopyToHost(got))
		require.Equal(t, count(100), got)
		require.NoError(t, b.Fill(-1))
		return
	}
	if n, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED); err != nil || n == 0 {
		t.Skip("the device shares no memory")
	}
	p := physical(t, x, granule, safe.PhysicalMemoryOptions{Shareable: true})
	b := show(p)
	require.NoError(t, b.CopyFromHost(count(100)))
	f, err := p.Export()
	require.NoError(t, err)
	defer f.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := command.Built(self, "-test.run=^TestVirtualProcesses$", "-test.timeout="+hang.String())
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), child+"=1"), []*os.File{f}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, -1, got[99])
}

// TestVirtualDevices: a range has memory of several devices, and kernels of several
// devices use it.
func TestVirtualDevices(t *testing.T) {
	x := open(t, 0)
	y := second(t)
	granule := virtual(t, x)
	virtual(t, y)
	can, err := x.Device().CanAccessPeer(y.Device())
	require.NoError(t, err)
	if !can {
		t.Skip("the devices cannot reach each other's memory")
	}
	r := reserve(t, x, 2*granule)
	mapped(t, x, r, 0, granule)
	require.NoError(t, r.Map(granule, physical(t, y, granule, safe.PhysicalMemoryOptions{})))
	require.NoError(t, r.SetAccess(granule, granule, readWrite, y.Device(), x.Device()))
	n := int(granule / 2)
	b := mappedBuffer[float32](t, r, 0, n)
	require.NoError(t, b.CopyFromHost(count(n)))
	fill, s := kernel(t, y, "fill"), stream(t, y)
	args := []safe.Arg{safe.Val(uint32(n)), safe.Val(float32(3)), b.Arg()}
	assert.ErrorIs(t, fill.Launch(s, perValue(n), args...), safe.ErrContextMismatch)
	require.NoError(t, r.SetAccess(0, 2*granule, readWrite, y.Device()))
	require.NoError(t, fill.Launch(s, perValue(n), args...))
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got), "after the kernel of the other device")
	assert.EqualValues(t, 3, got[0])
	assert.EqualValues(t, 3, got[n-1])
}

// TestVirtualHost: kernels use host memory at the same addresses as the host.
func TestVirtualHost(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	o := safe.PhysicalMemoryOptions{Location: safe.NUMALocation(0)}
	p, err := safe.NewPhysicalMemory(x, granule, o)
	if err != nil {
		t.Skip("no memory of the host: ", err)
	}
	closing(t, p)
	r := reserve(t, x, p.Size())
	require.NoError(t, r.Map(0, p))
	require.NoError(t, r.SetAccess(0, p.Size(), readWrite))
	b := mappedBuffer[float32](t, r, 0, 100)
	require.NoError(t, b.CopyFromHost(count(100)))
	got := make([]float32, 100)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, count(100), got)
}

// TestVirtualClosed: calls on nil, zero values and closed objects return ErrClosed.
func TestVirtualClosed(t *testing.T) {
	x := open(t, 0)
	granule := virtual(t, x)
	r := reserve(t, x, granule)
	p := physical(t, x, granule, safe.PhysicalMemoryOptions{})
	calls := func(x *safe.Context, r *safe.AddressRange, p *safe.PhysicalMemory) map[string]func() error {
		return map[string]func() error{
			"Context.Granularity":    func() error { _, _, err := x.Granularity(safe.PhysicalMemoryOptions{}); return err },
			"NewPhysicalMemory":      func() error { _, err := safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{}); return err },
			"ImportPhysicalMemory":   func() error { _, err := safe.ImportPhysicalMemory(x, os.Stdin, 1); return err },
			"PhysicalMemory.Export":  func() error { _, err := p.Export(); return err },
			"ReserveAddress":         func() error { _, err := safe.ReserveAddress(x, 1, safe.ReserveOptions{}); return err },
			"AddressRange.Map":       func() error { return r.Map(0, p) },
			"AddressRange.Unmap":     func() error { return r.Unmap(0, 1) },
			"AddressRange.SetAccess": func() error { return r.SetAccess(0, 1, readWrite) },
			"AddressRange.Access":    func() error { _, err := r.Access(0, safe.Device{}); return err },
			"NewMappedBuffer":        func() error { _, err := safe.NewMappedBuffer[byte](r, 0, 1); return err },
		}
	}
	require.NoError(t, r.Close())
	require.NoError(t, p.Close())
	shut, err := safe.Open(0)
	require.NoError(t, err)
	require.NoError(t, shut.Close())
	refusedAll(t, calls(shut, r, p))
	refusedAll(t, calls(&safe.Context{}, &safe.AddressRange{}, &safe.PhysicalMemory{}))
	refusedAll(t, calls(nil, nil, nil))
	for _, v := range []*safe.AddressRange{nil, {}} {
		assert.NoError(t, v.Close())
		assert.Zero(t, v.Size())
		assert.Zero(t, v.Raw())
	}
	for _, v := range []*safe.PhysicalMemory{nil, {}} {
		assert.NoError(t, v.Close())
		assert.Zero(t, v.Size())
		assert.Zero(t, v.Raw())
		assert.Zero(t, v.Location())
	}
}

// TestVirtualAccessBesideHostFunc tests that SetAccess, while it waits for work, holds up no
// host function that uses the range.
func TestVirtualAccessBesideHostFunc(t *testing.T) {
	for name, call := range map[string]func(r *safe.AddressRange) error{
		"NewMappedBuffer": func(r *safe.AddressRange) error {
			b, err := safe.NewMappedBuffer[byte](r, 0, 4)
			return errors.Join(except(err, safe.ErrInCallback), b.Close())
		},
		"Close": (*safe.AddressRange).Close,
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				granule := virtual(t, x)
				s, r := stream(t, x), reserve(t, x, granule)
				mapped(t, x, r, 0, granule)
				b := mappedBuffer[byte](t, r, 0, 16)
				begun, waits, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
				_, err := s.LaunchHostFunc(func() {
					close(begun)
					<-waits
					assert.NoError(t, call(r))
					close(ended)
				})
				require.NoError(t, errors.Join(err, b.FillAsync(s, 0)))
				<-begun
				require.NoError(t, b.Close())
				set := make(chan error, 1)
				go func() { set <- r.SetAccess(0, granule, driver.CU_MEM_ACCESS_FLAGS_PROT_READ) }()
				inside(t, "(*AddressRange).SetAccess", "(*pendingWork).wait")
				close(waits)
				if soon(t, ended, "the host function waits for SetAccess") {
					assert.NoError(t, except(<-set, safe.ErrInvalidArgument, safe.ErrRange))
				}
			})
		})
	}
}
