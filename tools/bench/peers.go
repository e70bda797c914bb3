package main

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// peers is the bandwidth of copies of 64 MiB between two GPUs, one after another,
// each waited for: one way, the other, and both at once.
var peers = group{
	name:    "peers",
	columns: []string{"GB/s", "GB/s/C"},
	plot:    []string{"GB/s", "GB/s/C"},
	run:     between,
}

func between(g *gpu, e effort) ([]*line, error) {
	p := &pair{size: e.of(largest, 1<<20)}
	lines, err := p.measure(g, e)
	return lines, errors.Join(err, p.close())
}

// pair is two GPUs, the first of which is everybody's.
type pair struct {
	size int
	ends [2]end
}

// end is what there is on one of them. A copy runs on the stream of where it comes
// from.
type end struct {
	ctx      *safe.Context
	stream   *safe.Stream
	from, to *safe.Buffer[byte]
}

func (p *pair) measure(g *gpu, e effort) ([]*line, error) {
	other, err := anotherThan(int(g.ctx.Device().Raw()))
	if err != nil {
		return nil, err
	}
	for i, ordinal := range []int{int(g.ctx.Device().Raw()), other} {
		if err := p.ends[i].open(ordinal, p.size); err != nil {
			return nil, err
		}
	}
	lines, err := p.copies(g, e, "without peer access")
	if err != nil {
		return nil, err
	}
	switch can, err := p.enable(); {
	case err != nil:
		return nil, err
	case !can:
		return lines, nil
	}
	more, err := p.copies(g, e, "with peer access")
	return append(lines, more...), err
}

// anotherThan is the first other GPU.
func anotherThan(ordinal int) (int, error) {
	var n int32
	if err := driver.CuDeviceGetCount(&n); err != nil {
		return 0, err
	}
	if n < 2 {
		return 0, fmt.Errorf("there is but one GPU: %w", errors.ErrUnsupported)
	}
	if ordinal == 0 {
		return 1, nil
	}
	return 0, nil
}

func (d *end) open(ordinal, size int) (err error) {
	if d.ctx, err = safe.Open(ordinal); err != nil {
		return err
	}
	if d.stream, err = safe.NewStreamWith(d.ctx, safe.StreamOptions{NonBlocking: true}); err != nil {
		return err
	}
	if d.from, err = safe.NewBuffer[byte](d.ctx, size); err != nil {
		return err
	}
	d.to, err = safe.NewBuffer[byte](d.ctx, size)
	return err
}

func (p *pair) close() error {
	var errs []error
	for _, d := range p.ends {
		errs = append(errs, d.from.Close(), d.to.Close(), d.stream.Close(), d.ctx.Close())
	}
	return errors.Join(errs...)
}

// enable has both reach the other's memory, if they can.
func (p *pair) enable() (bool, error) {
	x, y := p.ends[0].ctx, p.ends[1].ctx
	for _, way := range [][2]*safe.Context{{x, y}, {y, x}} {
		if can, err := way[0].Device().CanAccessPeer(way[1].Device()); err != nil || !can {
			return false, err
		}
		if err := way[0].EnablePeerAccess(way[1]); err != nil {
			return false, err
		}
	}
	return true, nil
}

// direction is a copy.
type direction struct{ from, to *end }

func (p *pair) copies(g *gpu, e effort, how string) ([]*line, error) {
	there, back := direction{&p.ends[0], &p.ends[1]}, direction{&p.ends[1], &p.ends[0]}
	var lines []*line
	for _, c := range []struct {
		name string
		all  []direction
	}{
		{there.name(), []direction{there}},
		{back.name(), []direction{back}},
		{"both at once", []direction{there, back}},
	} {
		more, err := p.compare(g, e, c.name+", "+how, c.all)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.name, how, err)
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func (d direction) name() string {
	return fmt.Sprintf("%d to %d", d.from.ctx.Device().Raw(), d.to.ctx.Device().Raw())
}

// compare has two safe ways take turns with C: the one whose wait blocks has the place
// of the raw one.
func (p *pair) compare(g *gpu, e effort, name string, all []direction) ([]*line, error) {
	args := [16]uintptr{
		g.fn("cuMemcpyPeerAsync"), g.fn("cuCtxPushCurrent_v2"), g.fn("cuStreamSynchronize"), g.fn("cuCtxPopCurrent_v2"),
		uintptr(p.size), uintptr(len(all)),
	}
	if g.missing != nil {
		return nil, g.missing
	}
	for i, d := range all {
		copy(args[6+5*i:], []uintptr{
			uintptr(d.to.to.Raw()), uintptr(d.to.ctx.Raw()), uintptr(d.from.from.Raw()), uintptr(d.from.ctx.Raw()), uintptr(d.from.stream.Raw()),
		})
	}
	r := row{
		c:    loop(cloop.Peers, args[:]...),
		raw:  times(func() error { return copied(all, (*safe.Stream).SynchronizeBlocking) }),
		safe: times(func() error { return copied(all, (*safe.Stream).Synchronize) }),
	}
	result, err := e.meter.measure(&r)
	if err != nil {
		return nil, err
	}
	var lines []*line
	for _, way := range []struct {
		name string
		*figures
	}{
		{"C", result.C},
		{"CopyFromAsync + SynchronizeBlocking", result.Raw},
		{"CopyFromAsync + Synchronize", result.Safe},
	} {
		l := newLine(name, way.name)
		l.Values["GB/s"] = float64(len(all)*p.size) / way.Median
		lines = append(lines, l)
		l.ratio("GB/s/C", "GB/s", lines[0])
		if way.figures != result.C {
			l.atLeast("GB/s/C", 0.99)
		}
	}
	return lines, nil
}

// copied makes the copies at once, and waits for them.
func copied(all []direction, wait func(*safe.Stream) error) error {
	for _, d := range all {
		if err := d.to.to.CopyFromAsync(d.from.stream, d.from.from); err != nil {
			return err
		}
	}
	for _, d := range all {
		if err := wait(d.from.stream); err != nil {
			return err
		}
	}
	return nil
}
