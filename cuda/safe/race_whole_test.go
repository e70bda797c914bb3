//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Two goroutines wait for all work of the context, while others create objects, use them and
// close them. Random programs crashed and hung in cuCtxSynchronize on an H200, once each, for
// reasons that are not known. Runs on any driver, in processes of its own.

package safe_test

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

// whole is what the goroutines of a row share.
type whole struct {
	*graphs
	spin  *safe.Kernel
	image []byte
}

// onNew calls f with a new stream that works for a moment, and closes the stream.
func (w *whole) onNew(f func(s *safe.Stream) error) error {
	s, err := safe.NewStreamWith(w.x, safe.StreamOptions{NonBlocking: w.turn.Add(1)%2 == 0})
	if err != nil {
		return err
	}
	err = w.spin.Launch(s, one, safe.Val(uint64(20_000)))
	return errors.Join(err, f(s), s.Close())
}

// cycleOf instantiates, launches and closes a new graph.
func (w *whole) cycleOf(g *safe.Graph) error {
	return errors.Join(w.cycle(g, w.turn.Add(1)%2 == 0), g.Close())
}

// closes uses new memory on the stream and closes it at once.
func closes(s *safe.Stream, b *safe.Buffer[uint32], err error) error {
	if err != nil {
		return err
	}
	return errors.Join(b.FillAsync(s, 1), b.Close())
}

var wholeRaces = map[string]func(w *whole) error{
	"streams": func(w *whole) error { return w.onNew(func(*safe.Stream) error { return nil }) },
	"streams with a known handle": func(w *whole) error {
		return w.onNew(func(s *safe.Stream) error { s.Raw(); return nil }) // the context does not keep them
	},
	"released streams": func(w *whole) error {
		return w.onNew(func(s *safe.Stream) error {
			raw := s.Release()
			return w.x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) })
		})
	},
	"events": func(w *whole) error {
		e, err := safe.NewEvent(w.x)
		if err != nil {
			return err
		}
		return errors.Join(w.stream().Record(e), w.stream().WaitEvent(e), e.Close())
	},
	"host functions": func(w *whole) error {
		s := w.stream()
		_, err := s.LaunchHostFunc(func() {})
		return errors.Join(err, s.AddCallback(func(error) {}), s.Synchronize())
	},
	"executables":     func(w *whole) error { return w.cycle(w.graph, true) },
	"captured graphs": func(w *whole) error { return w.captures(safe.CaptureRelaxed) },
	"conditional graphs": func(w *whole) error {
		g, err := safe.NewGraph(w.x)
		if err != nil {
			return err
		}
		c, err := g.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
		if err != nil {
			return errors.Join(except(err), g.Close())
		}
		_, body, err := g.AddIf(c)
		if err == nil {
			_, err = body.Add(safe.FillNode(w.b, 7))
		}
		return errors.Join(err, w.cycleOf(g))
	},
	"memory of graphs": func(w *whole) error {
		g, err := safe.NewGraph(w.x)
		if err != nil {
			return err
		}
		room, n, err := safe.AddAlloc[uint32](g, 64)
		if err == nil {
			n, err = g.Add(safe.FillNode(room, 7), n)
		}
		if err == nil {
			_, err = g.Add(safe.FreeNode(room), n)
		}
		return errors.Join(err, w.cycleOf(g))
	},
	"buffers": func(w *whole) error {
		b, err := safe.NewBuffer[uint32](w.x, 64)
		return closes(w.stream(), b, err)
	},
	"async buffers": func(w *whole) error {
		s := w.stream()
		b, err := safe.NewBufferAsync[uint32](s, 64)
		return closes(s, b, err)
	},
	"plain buffers": func(w *whole) error {
		b, err := safe.NewBufferWith[uint32](w.x, 64, safe.BufferOptions{Plain: true})
		return closes(w.stream(), b, err)
	},
	"pinned memory": func(w *whole) error {
		h, err := safe.NewPinned[uint32](w.x, 64)
		if err != nil {
			return err
		}
		return errors.Join(w.b.CopyToHostAsync(w.stream(), h), h.Close())
	},
	"pools": func(w *whole) error {
		p, err := safe.NewPool(w.x)
		if err != nil {
			return err
		}
		s := w.stream()
		b, err := safe.NewBufferFrom[uint32](p, s, 64)
		return errors.Join(closes(s, b, err), p.Close())
	},
	"modules": func(w *whole) error {
		m, err := safe.Load(w.x, w.image)
		if err != nil {
			return err
		}
		k, err := m.Kernel("nothing")
		if err == nil {
			err = k.Launch(w.stream(), one)
		}
		return errors.Join(err, m.Close())
	},
	"waits for values": func(w *whole) error {
		h, err := safe.NewPinned[uint32](w.x, 1)
		if err != nil {
			return err
		}
		s := w.stream()
		if err := safe.WaitValue(s, h.At(0), uint32(1), driver.CU_STREAM_WAIT_VALUE_GEQ); err != nil {
			return errors.Join(except(err), h.Close())
		}
		time.Sleep(50 * time.Microsecond)
		atomic.StoreUint32(&h.Data()[0], 1)
		return errors.Join(s.Synchronize(), h.Close())
	},
}

// TestWholeRaces: while a goroutine waits for the whole context, others do what does not
// change the captures of its streams.
func TestWholeRaces(t *testing.T) {
	image, err := os.ReadFile("testdata/kernels.ptx")
	require.NoError(t, err)
	for name, row := range wholeRaces {
		t.Run(name, func(t *testing.T) {
			racing(t, func(g *graphs, c *racers) {
				w := &whole{g, kernel(g.t, g.x, "spin"), image}
				c.add(3, func() error { return row(w) })
				c.add(1, func() error { return except(w.x.Synchronize(), safe.ErrCapturing) })
				c.add(1, func() error {
					return except(w.x.WithoutCaptures(func() error {
						return errors.Join(driver.CuCtxSynchronize(), driver.CuMemsetD32Async(w.b.Raw(), 7, 64, driver.CU_STREAM_LEGACY), driver.CuCtxSynchronize())
					}), safe.ErrCapturing)
				})
			})
		})
	}
}
