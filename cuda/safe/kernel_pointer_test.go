//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Typed memory as an argument and inside of one. Runs on any driver, but for what needs the simulated one.

package safe_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// passes are the ways in which memory gets to a kernel, by their names: each returns the argument with
// its address, and what goes into LaunchConfig.Uses.
var passes = map[string]func(safe.Pointer[float32]) (safe.Arg, []safe.Arg){
	"PointerArg":     func(p safe.Pointer[float32]) (safe.Arg, []safe.Arg) { return safe.PointerArg(p), nil },
	"VoidPointerArg": func(p safe.Pointer[float32]) (safe.Arg, []safe.Arg) { return safe.VoidPointerArg(p), nil },
	"PointerAddress": func(p safe.Pointer[float32]) (safe.Arg, []safe.Arg) {
		address, uses := safe.PointerAddress(p, nil)
		return safe.Val(address), uses
	},
	"VoidPointerAddress": func(p safe.Pointer[float32]) (safe.Arg, []safe.Arg) {
		address, uses := safe.VoidPointerAddress(p, nil)
		return safe.Val(address.Raw()), uses
	},
}

func TestPointers(t *testing.T) {
	x := open(t, 0)
	s, out, store := stream(t, x), buffer[uint64](t, x, 1), kernel(t, x, "store")
	plain, pinned, arena := buffer[float32](t, x, 8), host[float32](t, x, 8), newArenaOf(t, s, 1000)
	slice, err := plain.Slice(3, 8)
	require.NoError(t, err)
	async, err := safe.NewBufferAsync[float32](s, 8)
	require.NoError(t, err)
	closing(t, async)
	managed, err := safe.NewManagedBuffer[float32](x, 8)
	require.NoError(t, err)
	closing(t, managed)
	pitched, err := safe.NewPitched[float32](x, safe.Extent{Width: 3, Height: 4})
	require.NoError(t, err)
	closing(t, pitched)
	onHost, err := safe.PitchedOf(make([]float32, 12), safe.Extent{Width: 3, Height: 4}, 12)
	require.NoError(t, err)
	pooled, inArena := bufferFrom[float32](t, pool(t, x, safe.PoolOptions{}), s, 8), in[float32](t, arena, 8)
	closed, gone := buffer[float32](t, x, 8), host[float32](t, x, 8)
	require.NoError(t, closed.Close())
	require.NoError(t, gone.Close())
	type test struct {
		name    string
		pointer safe.Pointer[float32]
		want    driver.CUdeviceptr
		is      error
	}
	tests := []test{
		{"nil", nil, 0, nil},
		{"Buffer", plain, plain.Raw(), nil},
		{"slice", slice, plain.Raw() + 12, nil},
		{"empty", buffer[float32](t, x, 0), 0, nil},
		{"async", async, async.Raw(), nil},
		{"pooled", pooled, pooled.Raw(), nil},
		{"arena", inArena, inArena.Raw(), nil},
		{"managed", managed, managed.Raw(), nil},
		{"Pinned", pinned, driver.CUdeviceptr(uintptr(unsafe.Pointer(&pinned.Data()[0]))), nil},
		{"Pitched", pitched, pitched.Raw(), nil},
		{"closed Buffer", closed, 0, safe.ErrClosed},
		{"closed Pinned", gone, 0, safe.ErrClosed},
		{"nil Buffer", (*safe.Buffer[float32])(nil), 0, safe.ErrClosed},
		{"nil Pinned", (*safe.Pinned[float32])(nil), 0, safe.ErrClosed},
		{"nil Pitched", (*safe.Pitched[float32])(nil), 0, safe.ErrClosed},
		{"zero Buffer", new(safe.Buffer[float32]), 0, safe.ErrClosed},
		{"Pitched of a slice", onHost, 0, safe.ErrClosed},
	}
	if devices, err := safe.Devices(); err == nil && len(devices) > 1 {
		tests = append(tests, test{"other device", buffer[float32](t, open(t, 1), 8), 0, safe.ErrContextMismatch})
	}
	for _, test := range tests {
		for name, pass := range passes {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				require.NoError(t, out.Fill(^uint64(0)))
				arg, uses := pass(test.pointer)
				err := store.Launch(s, safe.LaunchConfig{Grid: one.Grid, Block: one.Block, Uses: uses}, out.Arg(), arg)
				if test.is != nil {
					assert.ErrorIs(t, err, test.is)
					return
				}
				require.NoError(t, err)
				got, err := out.Download()
				require.NoError(t, err)
				assert.EqualValues(t, test.want, got[0])
			})
		}
	}
}

// addressed has the layout of pair.
type addressed struct {
	At safe.Address[float32]
	By float64
}

func TestAddressesInMemory(t *testing.T) {
	x := open(t, 0)
	to := buffer[float32](t, x, 8)
	before := safe.Val(int32(1))
	address, uses := safe.PointerAddress(to, []safe.Arg{before})
	require.Len(t, uses, 2)
	assert.Equal(t, before, uses[0])
	assert.Equal(t, to.Raw(), address.Raw())

	list, err := safe.Upload(x, []safe.Address[float32]{address, {}})
	require.NoError(t, err)
	closing(t, list)
	var _ safe.Pointer[safe.Address[float32]] = list
	addresses, err := list.Download()
	require.NoError(t, err)
	assert.Equal(t, []safe.Address[float32]{address, {}}, addresses)

	structs, err := safe.Upload(x, []addressed{{address, 2}})
	require.NoError(t, err)
	closing(t, structs)
	got, err := structs.Download()
	require.NoError(t, err)
	assert.Equal(t, []addressed{{address, 2}}, got)
}

// TestAddressRetained: a launch keeps the memory whose address is in an argument until the kernel has run.
func TestAddressRetained(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g, s, out, pairs := newGate(t, x), stream(t, x), buffer[float64](t, x, 2), kernel(t, x, "pair")
	for name, pass := range map[string]func(*addressed) safe.Arg{
		"Ref": func(v *addressed) safe.Arg { return safe.Ref(v) },
		"Val": func(v *addressed) safe.Arg { return safe.Val(*v) },
	} {
		t.Run(name, func(t *testing.T) {
			g.flag.Data()[0] = 0
			alive := simulated.Live("async")
			b, err := safe.NewBufferAsync[float32](stream(t, x), 8)
			require.NoError(t, err)
			at := b.Raw()
			g.shut(t, s)
			v, cfg := addressed{By: 0.5}, one
			v.At, cfg.Uses = safe.PointerAddress(b, nil)
			require.NoError(t, pairs.Launch(s, cfg, pass(&v), out.Arg()))
			require.NoError(t, b.Close())
			assert.Never(t, func() bool { return simulated.Live("async") == alive }, 20*time.Millisecond, time.Millisecond, "the kernel has not run")
			g.open()
			assert.Eventually(t, func() bool { return simulated.Live("async") == alive }, atOnce, time.Millisecond)
			got, err := out.Download()
			require.NoError(t, err)
			assert.Equal(t, []float64{float64(at), 0.5}, got)
		})
	}
}
