//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// What operations compute. Runs on the simulated driver with a double of NCCL, and on GPUs.

package collective

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllReduce(t *testing.T) {
	w := newWorld(t)
	size := len(w.comms)
	src := filled(t, w, 100, func(rank, i int) float32 { return float32(i + 100*rank + 1) })
	dst := filled(t, w, 100, func(int, int) float32 { return 0 })
	for op, want := range map[Op]func(i int) float32{
		Sum:     func(i int) float32 { return float32(size*(i+1) + 100*size*(size-1)/2) },
		Min:     func(i int) float32 { return float32(i + 1) },
		Max:     func(i int) float32 { return float32(i + 1 + 100*(size-1)) },
		Average: func(i int) float32 { return float32(i+1) + 50*float32(size-1) },
	} {
		require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, dst[i], src[i], op) }))
		w.wait(t)
		for _, b := range dst {
			for i, v := range contents(t, b) {
				require.Equal(t, want(i), v, "%v of value %d", op, i)
			}
		}
	}
}

// TestScaledSum: each rank multiplies its values by a factor of its own, or one on its device.
func TestScaledSum(t *testing.T) {
	w := newWorld(t)
	src := filled(t, w, 10, func(rank, i int) float32 { return float32(i + rank) })
	dst := filled(t, w, 10, func(int, int) float32 { return 0 })
	factors := filled(t, w, 2, func(rank, i int) float32 { return float32(2*rank+1) / 4 })
	for name, by := range map[string]func(rank int) Op{
		"a number": func(rank int) Op { return ScaledSum(float64(2*rank+1) / 4) },
		"a buffer": func(rank int) Op { return ScaledSumBy(factors[rank]) },
	} {
		t.Run(name, func(t *testing.T) {
			var want [10]float32
			for i := range want {
				for r := range w.comms {
					want[i] += float32(i+r) * float32(2*r+1) / 4
				}
			}
			for range 10 { // an operator of NCCL each time
				require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, dst[i], src[i], by(i)) }))
			}
			w.wait(t)
			for _, b := range dst {
				assert.Equal(t, want[:], contents(t, b))
			}
		})
	}
}

// TestFactors: a factor on the device is read when the operation runs, also one of a graph, which keeps the buffer.
func TestFactors(t *testing.T) {
	w := newWorld(t)
	c, err := Open(soon(t), w.contexts[0])
	require.NoError(t, err)
	defer c.Close()
	s := w.streams[0]
	b := filled(t, w, 3, func(_, i int) int32 { return int32(i) })[0]
	factor, err := safe.Upload(w.contexts[0], []int32{3})
	require.NoError(t, err)
	double := ScaledSumBy(factor)
	require.NoError(t, AllReduce(c[0], s, b, b, double))
	require.NoError(t, c[0].Wait(soon(t), s))
	assert.Equal(t, []int32{0, 3, 6}, contents(t, b))
	e, err := s.CaptureExecutable(func() error { return AllReduce(c[0], s, b, b, double) })
	require.NoError(t, err)
	require.NoError(t, factor.CopyFromHost([]int32{-1}))
	require.NoError(t, factor.Close())
	require.NoError(t, e.Launch(s))
	require.NoError(t, c[0].Wait(soon(t), s))
	assert.Equal(t, []int32{0, -3, -6}, contents(t, b))
	assert.ErrorIs(t, AllReduce(c[0], s, b, b, double), safe.ErrClosed, "the program has closed it")
	require.NoError(t, e.Close())
}

func TestScalars(t *testing.T) {
	for name, test := range map[string]struct {
		element nccl.NcclDataType_t
		factor  float64
		want    []byte // nil if there is none
	}{
		"int8":          {nccl.NcclInt8, -128, []byte{128}},
		"too large":     {nccl.NcclInt8, 128, nil},
		"a fraction":    {nccl.NcclInt32, 0.5, nil},
		"negative":      {nccl.NcclUint64, -1, nil},
		"uint8":         {nccl.NcclUint8, 255, []byte{255}},
		"too small":     {nccl.NcclInt64, -1e19, nil},
		"int64":         {nccl.NcclInt64, 1 << 40, []byte{0, 0, 0, 0, 0, 1}},
		"uint32":        {nccl.NcclUint32, 1 << 31, []byte{0, 0, 0, 128}},
		"int32":         {nccl.NcclInt32, 1 << 31, nil},
		"not a number":  {nccl.NcclUint64, math.NaN(), nil},
		"uint64":        {nccl.NcclUint64, math.Inf(1), nil},
		"float64":       {nccl.NcclFloat64, 1, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		"float32":       {nccl.NcclFloat32, -2, []byte{0, 0, 0, 0xc0}},
		"half":          {nccl.NcclFloat16, 1, []byte{0, 0x3c}},
		"bfloat16":      {nccl.NcclBfloat16, 1, []byte{0x80, 0x3f}},
		"float of e4m3": {nccl.NcclFloat8e4m3, 1, []byte{0x38}},
		"float of e5m2": {nccl.NcclFloat8e5m2, 1, []byte{0x3c}},
	} {
		value, ok := scalarOf(test.element, test.factor)
		assert.Equal(t, test.want != nil, ok, name)
		var want [8]byte
		copy(want[:], test.want)
		assert.Equal(t, want, value, name)
	}
}

// ofType multiplies rank+1 of all ranks in place.
func ofType[T Element](of func(v float32) T, number nccl.NcclDataType_t) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) {
		b := filled(t, w, 5, func(rank, _ int) T { return of(float32(rank + 1)) })
		err := w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Product) })
		if major, _, _ := w.contexts[0].Device().ComputeCapability(); needsHopper(number) && major < 9 {
			assert.ErrorIs(t, err, safe.ErrNotSupported)
			return
		}
		require.NoError(t, err)
		w.wait(t)
		if !onGPU {
			assert.EqualValues(t, number, told.Element)
			if number == nccl.NcclFloat16 || needsHopper(number) {
				return // the double does not compute them
			}
		}
		want := float32(1)
		for r := range w.comms {
			want *= float32(r + 1)
		}
		for _, v := range b {
			assert.Equal(t, []T{of(want), of(want), of(want), of(want), of(want)}, contents(t, v))
		}
	}
}

func number[T int8 | uint8 | int32 | uint32 | int64 | uint64 | float32 | float64](v float32) T {
	return T(v)
}

func TestElements(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]func(*testing.T, *world){
		"int8":       ofType(number[int8], nccl.NcclInt8),
		"uint8":      ofType(number[uint8], nccl.NcclUint8),
		"int32":      ofType(number[int32], nccl.NcclInt32),
		"uint32":     ofType(number[uint32], nccl.NcclUint32),
		"int64":      ofType(number[int64], nccl.NcclInt64),
		"uint64":     ofType(number[uint64], nccl.NcclUint64),
		"float32":    ofType(number[float32], nccl.NcclFloat32),
		"float64":    ofType(number[float64], nccl.NcclFloat64),
		"Float16":    ofType(dtype.NewFloat16, nccl.NcclFloat16),
		"BFloat16":   ofType(dtype.NewBFloat16, nccl.NcclBfloat16),
		"Float8E4M3": ofType(dtype.NewFloat8E4M3, nccl.NcclFloat8e4m3),
		"Float8E5M2": ofType(dtype.NewFloat8E5M2, nccl.NcclFloat8e5m2),
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

// pair is a value that NCCL does not know.
type pair struct {
	A int16
	B [3]byte
}

// marked is value i of the part for rank to, at rank from.
func marked(from, to, i int) pair { return pair{int16(100*from + to), [3]byte{byte(i)}} }

// parts is what marked makes for the ranks.
func parts(n int, f func(p, i int) pair) (all []pair) {
	for p := range n {
		for i := range 4 {
			all = append(all, f(p, i))
		}
	}
	return all
}

func TestMoves(t *testing.T) {
	w := newWorld(t)
	size := len(w.comms)
	last := size - 1
	one := func() []*safe.Buffer[pair] {
		return filled(t, w, 4, func(rank, i int) pair { return marked(rank, rank, i) })
	}
	many := func() []*safe.Buffer[pair] {
		return filled(t, w, 4*size, func(rank, i int) pair { return marked(rank, i/4, i%4) })
	}
	empty := func(n int) []*safe.Buffer[pair] { return filled(t, w, n, func(int, int) pair { return pair{} }) }
	for _, c := range []struct {
		name     string
		dst, src []*safe.Buffer[pair]
		call     func(c *Comm, s *safe.Stream, dst, src *safe.Buffer[pair]) error
		want     func(rank int) []pair
	}{
		{"AllGather", empty(4 * size), one(), AllGather[pair], func(int) []pair {
			return parts(size, func(p, i int) pair { return marked(p, p, i) })
		}},
		{"AllToAll", empty(4 * size), many(), AllToAll[pair], func(rank int) []pair {
			return parts(size, func(p, i int) pair { return marked(p, rank, i) })
		}},
		{"Broadcast", one(), empty(0), func(c *Comm, s *safe.Stream, b, _ *safe.Buffer[pair]) error { return Broadcast(c, s, b, last) }, func(int) []pair {
			return parts(1, func(_, i int) pair { return marked(last, last, i) })
		}},
		{"Gather", empty(4 * size), one(), func(c *Comm, s *safe.Stream, dst, src *safe.Buffer[pair]) error {
			if c.Rank() != last {
				dst = nil
			}
			return Gather(c, s, dst, src, last)
		}, func(rank int) []pair {
			return parts(size, func(p, i int) pair {
				if rank != last {
					return pair{}
				}
				return marked(p, p, i)
			})
		}},
		{"Scatter", empty(4), many(), func(c *Comm, s *safe.Stream, dst, src *safe.Buffer[pair]) error {
			if c.Rank() != last {
				src = nil
			}
			return Scatter(c, s, dst, src, last)
		}, func(rank int) []pair {
			return parts(1, func(_, i int) pair { return marked(last, rank, i) })
		}},
		{"Send and Recv", empty(4), one(), func(c *Comm, s *safe.Stream, dst, src *safe.Buffer[pair]) error {
			return errors.Join(Send(c, s, src, (c.Rank()+1)%size), Recv(c, s, dst, (c.Rank()+last)%size))
		}, func(rank int) []pair {
			from := (rank + last) % size
			return parts(1, func(_, i int) pair { return marked(from, from, i) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, w.each(func(r *Comm, s *safe.Stream, i int) error { return c.call(r, s, c.dst[i], c.src[i]) }))
			w.wait(t)
			for r, b := range c.dst {
				assert.Equal(t, c.want(r), contents(t, b), "rank %d", r)
			}
		})
	}
}

// TestExchangesOfMessages: NCCL before 2.28 has only messages.
func TestExchangesOfMessages(t *testing.T) {
	if onOlder(t, "-DBEFORE_2_28") {
		return
	}
	require.False(t, exchanges())
	TestMoves(t)
	testMessagesFail(t, true)
}

func TestReductionsInParts(t *testing.T) {
	w := newWorld(t)
	size := len(w.comms)
	src := filled(t, w, 2*size, func(rank, i int) int64 { return int64(i + 10*rank) })
	sum := func(i int) int64 { return int64(size*i + 10*size*(size-1)/2) }
	at := func(b *safe.Buffer[int64], rank int) *safe.Buffer[int64] {
		part, err := b.Slice(2*rank, 2*rank+2)
		require.NoError(t, err)
		return part
	}
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return ReduceScatter(c, s, at(src[i], i), src[i], Sum) }))
	w.wait(t)
	for r, b := range src {
		assert.Equal(t, []int64{sum(2 * r), sum(2*r + 1)}, contents(t, at(b, r)), "rank %d", r)
	}
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllGather(c, s, src[i], at(src[i], i)) }))
	w.wait(t)
	for r, b := range src {
		for i, v := range contents(t, b) {
			assert.Equal(t, sum(i), v, "value %d of rank %d", i, r)
		}
	}
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error {
		if i == 0 {
			return Reduce(c, s, src[i], src[i], Max, 0)
		}
		return Reduce(c, s, nil, src[i], Max, 0)
	}))
	w.wait(t)
	assert.Equal(t, sum(1), contents(t, src[0])[1])
}

// TestGoroutines enqueues operations of each rank from a goroutine of its own.
func TestGoroutines(t *testing.T) {
	w := newWorld(t)
	const rounds = 50
	b := filled(t, w, 10, func(int, int) float64 { return 1 })
	done := make(chan error)
	for i, c := range w.comms {
		go func() {
			var err error
			for range rounds {
				err = errors.Join(err, AllReduce(c, w.streams[i], b[i], b[i], Average))
			}
			done <- errors.Join(err, c.Wait(soon(t), w.streams[i]))
		}()
	}
	for range w.comms {
		assert.NoError(t, <-done)
	}
	for _, b := range b {
		assert.Equal(t, 1.0, contents(t, b)[9])
	}
}

// TestCapture captures the operation of each rank, and replays all graphs.
func TestCapture(t *testing.T) {
	w := newWorld(t)
	b := filled(t, w, 10, func(int, int) float32 { return 1 })
	require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Sum) }))
	w.wait(t)
	execs := make([]*safe.GraphExec, len(w.comms))
	for i, c := range w.comms {
		var err error
		execs[i], err = w.streams[i].CaptureExecutable(func() error { return AllReduce(c, w.streams[i], b[i], b[i], Sum) })
		require.NoError(t, err)
	}
	want := float32(len(w.comms))
	for range 3 {
		for i, e := range execs {
			require.NoError(t, e.Launch(w.streams[i]))
		}
		w.wait(t)
		want *= float32(len(w.comms))
		for _, b := range b {
			assert.Equal(t, want, contents(t, b)[9])
		}
	}
	require.NoError(t, w.comms.Close())
	for i, c := range w.comms {
		assert.NoError(t, c.Err(), "the executable keeps it")
		require.NoError(t, execs[i].Launch(w.streams[i]))
	}
	for i, s := range w.streams {
		require.NoError(t, s.Synchronize())
		require.NoError(t, execs[i].Close())
	}
	require.NoError(t, w.comms.Shutdown(soon(t)))
}

// TestCapability: NCCL reduces floats of 8 bits from compute capability 9.0 on, and moves them before.
func TestCapability(t *testing.T) {
	needsDouble(t)
	control, err := sim.Attach(os.Getenv("CUDABIND_SIM"))
	require.NoError(t, err)
	t.Cleanup(func() { control.Capability(0, 0) })
	for _, c := range []struct {
		major, minor int
		reduces      bool
	}{{8, 0, false}, {8, 9, false}, {9, 0, true}, {10, 0, true}} {
		control.Capability(c.major, c.minor)
		w := newWorld(t)
		b := filled(t, w, 4, func(int, int) dtype.Float8E4M3 { return dtype.NewFloat8E4M3(1) })
		reduced := w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Sum) })
		if c.reduces {
			assert.NoError(t, reduced)
		} else {
			assert.ErrorIs(t, reduced, safe.ErrNotSupported)
		}
		require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return Broadcast(c, s, b[i], 0) }))
		w.wait(t)
	}
}

// TestManyPending: a stream takes 100 operations before a call waits.
func TestManyPending(t *testing.T) {
	needsDouble(t) // one rank is enough for it
	w := newWorld(t)
	tell(t, &told.Nothing, 1)
	s, b := w.streams[0], filled(t, w, 2, func(int, int) float32 { return 1 })[0]
	sum := func() error { return AllReduce(w.comms[0], s, b, b, Sum) }
	drivertest.AllPending(t, s.LaunchHostFunc, sum)
	require.NoError(t, s.Synchronize())
}

// TestReplacedInGroup: an operation is of the communicator and on the stream that it was added with, or it is refused,
// whatever the program writes into these objects before the group ends.
func TestReplacedInGroup(t *testing.T) {
	w := newWorld(t)
	b := filled(t, w, 1, func(rank, _ int) int32 { return int32(1 + rank) })
	want := int32(len(b) * (len(b) + 1) / 2)
	var c Comm
	require.NoError(t, Group(func(g *Calls) error {
		for i := range w.comms {
			drivertest.Replace(&c, w.comms[i])
			if err := AllReduce(c.In(g), w.streams[i], b[i], b[i], Sum); err != nil {
				return err
			}
		}
		return nil
	}))
	w.wait(t)
	for i := range b {
		assert.Equal(t, []int32{want}, contents(t, b[i]))
	}
	if len(b) < 2 {
		return
	}
	var s safe.Stream
	err := Group(func(g *Calls) error {
		for i := range w.comms {
			drivertest.Replace(&s, w.streams[i])
			if err := AllReduce(w.comms[i].In(g), &s, b[i], b[i], Sum); err != nil {
				return err
			}
		}
		return nil
	})
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.NoError(t, w.comms[0].Err())
}
