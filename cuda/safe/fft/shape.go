package fft

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// Layout is where the elements of transforms lie in a buffer. The zero Layout is dense.
type Layout struct {
	// Embed has the sizes of the array that holds the elements of one transform in a corner,
	// the slowest dimension first. nil means the sizes of the transform.
	Embed []int
	// Stride is the number of elements from one element to the next in the fastest dimension; 0 means 1.
	Stride int
	// Distance is the number of elements from the beginning of one transform of a batch to the next; 0 means the
	// product of Embed and Stride. Inputs of a batch may overlap, as windows of a signal do.
	Distance int
}

// Shape is what a plan transforms.
type Shape struct {
	// N has one to three sizes, the slowest dimension first: {nz, ny, nx}.
	N []int
	// Batch is how many transforms a call computes, 0 for 1.
	Batch int
	// In and Out are the layouts of Forward's input and output. Inverse exchanges them. The
	// complex side of a real transform has N[last]/2+1 elements in the fastest dimension:
	// the others are their conjugates.
	In, Out Layout
	// InPlace is for plans from real to complex that work in one buffer: the dense layout of
	// the real numbers has rows of 2*(N[last]/2+1), of which the first N[last] count. Use
	// [safe.Cast] for the other view of the buffer. Complex plans whose layouts are equal work
	// in place without it.
	InPlace bool
}

// String returns the sizes, such as "4 transforms of 16x512".
func (s Shape) String() string {
	text := "a transform of "
	if s.Batch > 1 {
		text = fmt.Sprintf("%d transforms of ", s.Batch)
	}
	for i, n := range s.N {
		if i > 0 {
			text += "x"
		}
		text += fmt.Sprint(n)
	}
	return text
}

// mostElements bounds sizes and spans, so that products do not overflow.
const mostElements = 1 << 48

// problem is a checked Shape with types. Plans are cached by it.
type problem struct {
	rank     int
	n        [3]int64 // the slowest first; unused ones are 1
	batch    int64
	from, to kind
	in, out  side
	inPlace  bool // both sides may be the same memory
	scale    bool
}

// side is where the elements of one side lie.
type side struct {
	n        [3]int64 // differs between real and complex sides
	embed    [3]int64
	stride   int64
	distance int64
	span     int64 // elements from the first to the last, inclusive
	dense    bool  // there are no others in between
	overlaps bool  // elements of the batch do
}

// newProblem checks a shape. It allocates nothing unless it fails, as caches call it each time.
func newProblem[I Number, O Complex](s *Shape, o Options) (p problem, err error) {
	p = problem{rank: len(s.N), n: [3]int64{1, 1, 1}, batch: int64(cmp.Or(s.Batch, 1)), from: kindOf[I](), to: kindOf[O](), scale: o.Scale}
	if p.from.bits != p.to.bits {
		return p, library.Refuse("", safe.ErrInvalidArgument, "no transform leads from %s to %s", p.from.name, p.to.name)
	}
	if p.rank < 1 || p.rank > 3 {
		return p, library.Refuse("", safe.ErrInvalidArgument, "N has %d sizes: cuFFT has 1 to 3 dimensions", p.rank)
	}
	for i, n := range s.N {
		p.n[i] = int64(n)
		if n < 1 || s.Batch < 0 {
			return p, library.Refuse("", safe.ErrRange, "N is %v, Batch is %d", s.N, s.Batch)
		}
		if p.from.bits == 16 && n&(n-1) != 0 {
			return p, library.Refuse("", safe.ErrNotSupported, "cuFFT transforms half precision only in sizes that are powers of 2, and N is %v", s.N)
		}
	}
	half, rows := p.n, p.n
	if last := p.rank - 1; !p.from.complex {
		half[last] = p.n[last]/2 + 1
		if s.InPlace {
			rows[last] = 2 * half[last]
		}
	}
	if p.in, err = newSide("In", &p, p.n, rows, s.In); err != nil {
		return p, err
	}
	if p.out, err = newSide("Out", &p, half, half, s.Out); err != nil {
		return p, err
	}
	if p.out.overlaps {
		return p, library.Refuse("", safe.ErrOverlap, "elements of Out overlap: %+v", s.Out)
	}
	if p.from.bits == 16 && !p.from.complex && p.in.stride != 1 {
		return p, library.Refuse("", safe.ErrNotSupported, "cuFFT has no strides on the real side of half precision")
	}
	p.inPlace = p.fits()
	if s.InPlace && !p.inPlace {
		return p, library.Refuse("", safe.ErrInvalidArgument, "elements of In %+v and Out %+v do not lie at the same addresses", s.In, s.Out)
	}
	return p, nil
}

// fits tells whether both sides may be the same memory.
func (p *problem) fits() bool {
	a, b := p.in, p.out
	if p.from.complex {
		return a == b
	}
	last := p.rank - 1
	b.embed[last] *= 2
	return a.stride == 1 && b.stride == 1 && (p.batch == 1 || a.distance == 2*b.distance) && slices.Equal(a.embed[1:p.rank], b.embed[1:p.rank]) && a.embed[last] >= 2*b.n[last]
}

// newSide lays out n elements in rows.
func newSide(name string, p *problem, n, rows [3]int64, l Layout) (e side, err error) {
	e = side{n: n, embed: rows, stride: int64(cmp.Or(l.Stride, 1))}
	if l.Stride < 0 || l.Distance < 0 {
		return e, library.Refuse("", safe.ErrRange, "%s.Stride is %d, %s.Distance is %d", name, l.Stride, name, l.Distance)
	}
	if l.Embed != nil && len(l.Embed) != p.rank {
		return e, library.Refuse("", safe.ErrInvalidArgument, "%s.Embed has %d sizes, N has %d", name, len(l.Embed), p.rank)
	}
	for i, v := range l.Embed {
		if int64(v) < n[i] {
			return e, library.Refuse("", safe.ErrRange, "%s.Embed %v does not hold %d elements in dimension %d", name, l.Embed, n[i], i)
		}
		e.embed[i] = int64(v)
	}
	whole, count := product(e.embed[:]...), product(n[0], n[1], n[2], p.batch)
	e.distance = int64(l.Distance)
	if l.Distance == 0 {
		e.distance = product(whole, e.stride)
	}
	steps := [4]step{{p.batch, e.distance}}
	for i, at := p.rank-1, e.stride; i >= 0; i-- {
		steps[1+i] = step{n[i], at}
		at = product(at, e.embed[i])
	}
	slices.SortFunc(steps[:], func(a, b step) int { return cmp.Compare(a.by, b.by) })
	e.span = 1
	for _, s := range steps {
		e.overlaps = e.overlaps || s.n > 1 && s.by < e.span
		e.span += product(max(s.n-1, 0), s.by)
	}
	if max(whole, count, e.distance, e.span) >= mostElements {
		return e, library.Refuse("", safe.ErrRange, "%s reaches over too many elements", name)
	}
	e.dense = e.span == count && !e.overlaps
	return e, nil
}

// step is a dimension: n elements, each by elements after the one before.
type step struct{ n, by int64 }

// product returns a product of numbers that are not negative, at most mostElements.
func product(values ...int64) int64 {
	p := int64(1)
	for _, v := range values {
		if v != 0 && p > mostElements/v {
			return mostElements
		}
		p *= v
	}
	return p
}
