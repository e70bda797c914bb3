//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

func init() {
	add("wait", []kind{
		{name: "wait.wait", weight: 6, run: func(t *task) error {
			ctx, cancel := t.soon()
			defer cancel()
			return t.stream().Wait(ctx)
		}},
		{name: "wait.synchronize", weight: 5, run: func(t *task) error { return t.stream().Synchronize() }},
		{name: "wait.blocking", weight: 3, run: func(t *task) error { return t.stream().SynchronizeBlocking() }},
		{name: "wait.completion", weight: 5, run: func(t *task) error {
			ctx, cancel := t.soon()
			defer cancel()
			_, err := t.stream().Completion().Wait(ctx)
			return err
		}},
		{name: "wait.done", weight: 3, run: func(t *task) error {
			select {
			case <-t.stream().Completion().Done():
			case <-time.After(time.Millisecond):
			}
			return nil
		}},
		{name: "wait.enqueue", weight: 4, run: func(t *task) error {
			ctx, cancel := t.soon()
			defer cancel()
			_, err := safe.Enqueue(t.stream(), func(s *safe.Stream) (int, error) { return 0, t.deviceOf(s).nothing.Launch(s, one) }).Wait(ctx)
			return err
		}},
		{name: "wait.stuck", weight: 3, run: func(t *task) error { return t.clock.wait(t.stream(), 1+t.n(t.profile.ticks)) }},
		{name: "wait.crowd", weight: 2, run: func(t *task) error {
			s := t.stream()
			for range t.n(100) {
				go s.Synchronize()
				s.Completion()
			}
			return nil
		}},
		{name: "wait.shutdown", weight: 2, run: func(t *task) error {
			ctx, cancel := t.soon()
			defer cancel()
			return t.stream().Shutdown(ctx)
		}},
	})
	add("green", []kind{
		{name: "green.new", weight: 2, run: newGreen, allow: contexts},
		{name: "green.stream", weight: 6, run: func(t *task) error {
			s, err := t.greens.get(t.rng).NewStreamWith(safe.StreamOptions{NonBlocking: true})
			return put(t, &t.streams, s, err)
		}},
		{name: "green.record", weight: 4, run: func(t *task) error { return t.greens.get(t.rng).Record(t.events.get(t.rng)) }, allow: isolated},
		{name: "green.waitevent", weight: 4, run: func(t *task) error { return t.greens.get(t.rng).WaitEvent(t.events.get(t.rng)) }, allow: isolated},
		{name: "green.wait", weight: 4, run: func(t *task) error {
			ctx, cancel := t.soon()
			defer cancel()
			return t.greens.get(t.rng).Wait(ctx)
		}},
		{name: "green.ask", weight: 2, run: func(t *task) error {
			g := t.greens.get(t.rng)
			_, err := g.SMResource()
			return err
		}},
		{name: "green.close", weight: 1, run: func(t *task) error { return t.greens.get(t.rng).Close() }},
	})
	add("life", []kind{
		{name: "life.stream", weight: 4, run: func(t *task) error { return t.stream().Close() }},
		{name: "life.closeall", weight: 3, run: closeAll},
		{name: "life.context", weight: 3, run: otherContext},
		{name: "life.drop", weight: 6, run: dropSome},
		{name: "life.owncontext", weight: 1, run: ownContext},
		{name: "life.module", weight: 2, run: closeModule, allow: contexts},
		{name: "life.reset", weight: 1, run: resets},
	})
}

// resets tries to reset a device, whose context is open.
func resets(t *task) error {
	if err := t.device().x.Device().ResetPrimary(); !errors.Is(err, safe.ErrInUse) {
		return failf(wrong, "a reset of a device in use: %v", err)
	}
	return nil
}

func newGreen(t *task) error {
	g, err := green(t.device().x)
	if g == nil {
		return err
	}
	return put(t, &t.greens, g, err)
}

// green creates a green context with some multiprocessors of the device. It returns nil if they cannot
// be split.
func green(x *safe.Context) (*safe.GreenContext, error) {
	parts, _, err := x.Device().Split(safe.SplitOptions{Groups: 1, Min: 8})
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	return safe.NewGreenContext(x, parts[0])
}

// closeAll closes one shared object of each kind, even if it is in use.
func closeAll(t *task) error {
	var errs []error
	for _, c := range []closer{
		t.streams.get(t.rng), t.events.get(t.rng), t.buffers.get(t.rng), t.hosts.get(t.rng), t.pitched.get(t.rng), t.arrays.get(t.rng),
		t.textures.get(t.rng), t.surfaces.get(t.rng), t.pools.get(t.rng), t.arenas.get(t.rng), t.ranges.get(t.rng), t.physical.get(t.rng),
		t.graphs.get(t.rng), t.execs.get(t.rng), t.loops.get(t.rng), t.greens.get(t.rng), t.resources.get(t.rng),
	} {
		if t.yes(30) {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// otherContext opens the device again, or closes that context before the objects made in it, or
// all those and not the context.
func otherContext(t *task) error {
	if x := t.contexts.get(t.rng); x != nil && t.yes(70) {
		s, err := safe.NewStream(x)
		if err := put(t, &t.streams, s, err); err != nil {
			return err
		}
		switch t.n(4) {
		case 0, 1:
			return x.Close()
		case 2:
			return s.Context().CloseAll()
		}
		return nil
	}
	x, err := safe.Open(t.device().x.Device().Ordinal())
	return put(t, &t.contexts, x, err)
}

// ownContext creates a context, and closes it and what it has in any order.
func ownContext(t *task) error {
	x, err := safe.NewContext(t.device().x.Device())
	if err != nil {
		return err
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: t.yes(50)})
	if err != nil {
		return errors.Join(err, x.Close())
	}
	b, err := safe.NewBuffer[float32](x, size)
	if err != nil {
		return errors.Join(err, x.Close(), s.Close())
	}
	if t.yes(50) {
		err = x.Close()
	}
	got := make([]float32, size)
	err = errors.Join(err, b.FillAsync(s, 5), b.CopyToHost(got))
	if err == nil && got[size-1] != 5 {
		err = failf(mismatch, "a buffer of a context of its own has %v, not 5", got[size-1])
	}
	if t.yes(t.profile.drops) {
		return err
	}
	return errors.Join(err, s.Close(), b.Close(), x.Close())
}

// dropSome drops objects without closing them.
func dropSome(t *task) error {
	t.streams.swap(t.rng, nil)
	t.events.swap(t.rng, nil)
	t.buffers.swap(t.rng, nil)
	t.resources.swap(t.rng, nil)
	if t.yes(50) {
		t.graphs.swap(t.rng, nil)
		t.execs.swap(t.rng, nil)
	}
	return nil
}

// closeModule closes a module while its kernel runs or is in a graph.
func closeModule(t *task) error {
	m, err := safe.Load(t.device().x, kernelsPTX)
	if err != nil {
		return err
	}
	k, err := m.Kernel("nothing")
	if err != nil {
		return errors.Join(err, m.Close())
	}
	err = k.Launch(t.stream(), one)
	if g := t.graphs.get(t.rng); g != nil {
		if _, also := g.Add(safe.KernelNode(k, one)); !explained(also, graphy) {
			err = errors.Join(err, also)
		}
	}
	if t.yes(t.profile.drops) {
		return err
	}
	return errors.Join(err, m.Close())
}
