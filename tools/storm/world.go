//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	_ "embed"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

//go:embed kernels.ptx
var kernelsPTX []byte

//go:embed condition.ptx
var conditionPTX []byte

// size is the number of values of shared buffers.
const size = 256

// A world has the objects that the goroutines of a program share. Any goroutine may use, close or
// replace any of them at any time.
type world struct {
	profile *profile
	devices []*device
	clock   *clock
	counts  counts

	streams  slots[safe.Stream]
	events   slots[safe.Event]
	buffers  slots[safe.Buffer[float32]]
	words    slots[safe.Buffer[uint32]]
	hosts    slots[safe.Pinned[float32]]
	pitched  slots[safe.Pitched[float32]]
	arrays   slots[safe.Array[float32]]
	textures slots[safe.Texture]
	surfaces slots[safe.Surface]
	pools    slots[safe.Pool]
	arenas   slots[streamArena]
	ranges   slots[safe.AddressRange]
	physical slots[safe.PhysicalMemory]
	graphs   slots[safe.Graph]
	execs    slots[safe.GraphExec]
	loops    slots[safe.GraphExec] // with conditions, that nothing else may change
	greens   slots[safe.GreenContext]
	tenants  slots[tenant]
	contexts slots[safe.Context]
	batches  slots[safe.Batch]
	shelves  slots[shelf]
	captures slots[safe.Capture] // relaxed ones, that any goroutine may end

	resources slots[resource]
	releases  releases
	filling   []*safe.Buffer[byte] // in the profile full

	gone atomic.Bool // CUDA is lost or has no memory: errors need only be typed
}

// counts are totals for the summary.
type counts struct {
	steps, captures atomic.Int64
	mu              sync.Mutex
	ended           map[string]int // captures that ended with an error, by its text
}

// A device has a context and kernels of the program.
type device struct {
	x       *safe.Context
	green   *safe.GreenContext // for streams of goroutines' own; nil if there is none
	modules []*safe.Module

	libraries *libraries // in the profile of that name

	nothing, fill, add, saxpy, copy, spin, store, lookup, draw, trap *safe.Kernel
	condition                                                        *safe.Kernel // nil on older drivers
}

func newWorld(p *profile) (*world, error) {
	w := &world{profile: p}
	w.counts.ended = map[string]int{}
	devices, err := safe.Devices()
	if err != nil {
		return nil, err
	}
	for i := range min(p.devices, len(devices)) {
		d, err := openDevice(i)
		if err != nil {
			return nil, err
		}
		w.devices = append(w.devices, d)
		if p.libraries {
			if d.libraries, err = newLibraries(d.x); err != nil {
				return nil, err
			}
		}
		if p.own {
			if d.green, err = green(d.x); err != nil && !errors.Is(err, safe.ErrNotSupported) {
				return nil, err
			}
		}
	}
	if w.releases.marks, err = newMarks(w.devices[0].x); err != nil {
		return nil, err
	}
	if w.clock, err = newClock(w.devices[0].x); err == nil && p.full {
		err = w.fill(w.devices[0].x)
	}
	return w, err
}

// fill takes the memory of a device but 4 KiB to 8 MiB. From now on, any step may fail.
func (w *world) fill(x *safe.Context) error {
	w.gone.Store(true)
	spare, err := safe.NewBufferWith[byte](x, 4096<<rand.IntN(12), safe.BufferOptions{Plain: true})
	if err != nil {
		return err
	}
	defer spare.Close()
	for size := 4 << 30; size >= 1<<20; {
		b, err := safe.NewBufferWith[byte](x, size, safe.BufferOptions{Plain: true})
		switch {
		case errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY):
			size /= 2
		case err != nil:
			return err
		default:
			w.filling = append(w.filling, b)
		}
	}
	return nil
}

func openDevice(i int) (*device, error) {
	x, err := safe.Open(i)
	if err != nil {
		return nil, err
	}
	d := &device{x: x}
	m, err := safe.Load(x, kernelsPTX)
	if err != nil {
		return nil, err
	}
	d.modules = append(d.modules, m)
	for name, k := range map[string]**safe.Kernel{
		"nothing": &d.nothing, "fill": &d.fill, "add": &d.add, "saxpy": &d.saxpy, "copy": &d.copy,
		"spin": &d.spin, "store": &d.store, "lookup": &d.lookup, "draw": &d.draw, "trap": &d.trap,
	} {
		if *k, err = m.Kernel(name); err != nil {
			return nil, err
		}
	}
	if c, err := safe.Load(x, conditionPTX); err == nil {
		d.modules = append(d.modules, c)
		if d.condition, err = c.Kernel("condition"); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *device) close() error {
	var errs []error
	for _, m := range d.modules {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, d.libraries.close(), d.green.Close(), d.x.Close())...)
}

// close ends all waits and closes all objects. Goroutines have ended their captures before.
func (w *world) close() error {
	errs := []error{}
	w.batches.each((*safe.Batch).Reset)
	w.captures.each(func(c *safe.Capture) {
		if g, err := c.End(); err == nil {
			errs = append(errs, g.Close())
		}
	})
	for _, s := range []interface{ close() error }{
		&w.shelves, &w.tenants, &w.execs, &w.loops, &w.graphs, &w.textures, &w.surfaces, &w.pitched, &w.arrays, &w.arenas, &w.buffers, &w.words, &w.hosts,
		&w.events, &w.streams, &w.greens, &w.pools, &w.ranges, &w.physical, &w.contexts, &w.resources,
	} {
		errs = append(errs, s.close())
	}
	for _, b := range w.filling {
		errs = append(errs, b.Close())
	}
	for _, d := range w.devices {
		errs = append(errs, d.close())
	}
	return errors.Join(append(errs, w.clock.close(), w.releases.marks.memory.Close())...)
}

// slots hold shared objects of a kind. An empty slot is nil, for which every call must return
// ErrClosed.
type slots[T any] struct{ of [6]atomic.Pointer[T] }

func (s *slots[T]) get(rng *rand.Rand) *T { return s.of[rng.IntN(len(s.of))].Load() }

// swap stores v in a random slot and returns the previous object.
func (s *slots[T]) swap(rng *rand.Rand, v *T) *T { return s.of[rng.IntN(len(s.of))].Swap(v) }

// each empties the slots.
func (s *slots[T]) each(f func(*T)) {
	for i := range s.of {
		if v := s.of[i].Swap(nil); v != nil {
			f(v)
		}
	}
}

type closer interface{ Close() error }

func (s *slots[T]) close() error {
	var errs []error
	s.each(func(v *T) { errs = append(errs, any(v).(closer).Close()) })
	return errors.Join(errs...)
}

// A clock is a number in pinned memory that increases every few milliseconds. Streams wait for
// it, so every such wait ends, whatever else happens.
type clock struct {
	value *safe.Pinned[uint64]
	now   *uint64
	stop  chan struct{}
	ended chan struct{}
}

const tick = 2 * time.Millisecond

// ownPages are n pinned pages of Go memory, which stay mapped when CUDA is lost.
func ownPages(x *safe.Context, n int) (*safe.Pinned[uint64], error) {
	const page, each = 4096, 4096 / 8
	all := make([]uint64, (n+1)*each)
	skip := int((page - uintptr(unsafe.Pointer(&all[0]))%page) % page / 8)
	return safe.RegisterPinned(x, all[skip:skip+n*each])
}

func newClock(x *safe.Context) (*clock, error) {
	value, err := ownPages(x, 1)
	if err != nil {
		return nil, err
	}
	c := &clock{value, &value.Data()[0], make(chan struct{}), make(chan struct{})}
	atomic.StoreUint64(c.now, 0)
	go func() {
		defer close(c.ended)
		for t := time.NewTicker(tick); ; <-t.C {
			atomic.AddUint64(c.now, 1)
			select {
			case <-c.stop:
				t.Stop()
				return
			default:
			}
		}
	}()
	return c, nil
}

// wait makes the stream wait for the given number of ticks.
func (c *clock) wait(s *safe.Stream, ticks int) error {
	return safe.WaitValue(s, c.value.At(0), atomic.LoadUint64(c.now)+uint64(ticks), 0)
}

// close ends all present and future waits for the clock.
func (c *clock) close() error {
	close(c.stop)
	<-c.ended
	atomic.AddUint64(c.now, 1<<40)
	return c.value.Close()
}

// settle runs the collector and the reaper until done returns true, or time is up.
func settle(most time.Duration, done func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); {
		if done() {
			return true
		}
		runtime.GC()
		time.Sleep(2 * time.Millisecond)
	}
	return done()
}
