package random

import (
	"errors"
	"math"
	"sync"
	"unsafe"
	"weak"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// Float is a type of the continuous distributions.
type Float interface{ float32 | float64 }

// Word is a type of [Bits].
type Word interface{ uint32 | uint64 }

// Uniform enqueues numbers between 0, which is excluded, and 1, which is included.
// Source: curandGenerateUniform, curandGenerateUniformDouble.
func Uniform[T Float](g *Generator, s *safe.Stream, b *safe.Buffer[T]) error {
	return fill(g, "random.Uniform", s, b, of[T](&uniform32, &uniform64), parameters{})
}

var (
	uniform32 = distribution{address: safe.Symbol(curand.Library, "curandGenerateUniform"), generate: func(c *call, p unsafe.Pointer) error {
		return curand.CurandGenerateUniform(c.state.raw, (*float32)(p), c.n)
	}}
	uniform64 = distribution{address: safe.Symbol(curand.Library, "curandGenerateUniformDouble"), generate: func(c *call, p unsafe.Pointer) error {
		return curand.CurandGenerateUniformDouble(c.state.raw, (*float64)(p), c.n)
	}}
)

// Normal enqueues numbers of the normal distribution. A pseudo-random generator makes them in pairs: a buffer of an odd
// length takes one number more from the sequence.
//
// It returns [safe.ErrInvalidArgument] if stddev is negative, or if a parameter is not finite. Source:
// curandGenerateNormal, curandGenerateNormalDouble.
func Normal[T Float](g *Generator, s *safe.Stream, b *safe.Buffer[T], mean, stddev T) error {
	const op = "random.Normal"
	if err := moments(op, mean, stddev); err != nil {
		return err
	}
	return fill(g, op, s, b, of[T](&normal32, &normal64), parameters{float64(mean), float64(stddev)})
}

var (
	normal32 = distribution{address: safe.Symbol(curand.Library, "curandGenerateNormal"), single: true, pairs: true, generate: func(c *call, p unsafe.Pointer) error {
		return curand.CurandGenerateNormal(c.state.raw, (*float32)(p), c.n, float32(c.with.mean), float32(c.with.stddev))
	}}
	normal64 = distribution{address: safe.Symbol(curand.Library, "curandGenerateNormalDouble"), pairs: true, generate: func(c *call, p unsafe.Pointer) error {
		return curand.CurandGenerateNormalDouble(c.state.raw, (*float64)(p), c.n, c.with.mean, c.with.stddev)
	}}
)

// LogNormal enqueues numbers whose logarithms have the normal distribution with that mean and standard deviation, with
// the errors of [Normal]. Source: curandGenerateLogNormal, curandGenerateLogNormalDouble.
func LogNormal[T Float](g *Generator, s *safe.Stream, b *safe.Buffer[T], mean, stddev T) error {
	const op = "random.LogNormal"
	if err := moments(op, mean, stddev); err != nil {
		return err
	}
	return fill(g, op, s, b, of[T](&logNormal32, &logNormal64), parameters{float64(mean), float64(stddev)})
}

var (
	logNormal32 = distribution{address: safe.Symbol(curand.Library, "curandGenerateLogNormal"), single: true, pairs: true, generate: func(c *call, p unsafe.Pointer) error {
		return curand.CurandGenerateLogNormal(c.state.raw, (*float32)(p), c.n, float32(c.with.mean), float32(c.with.stddev))
	}}
	logNormal64 = distribution{address: safe.Symbol(curand.Library, "curandGenerateLogNormalDouble"), pairs: true, generate: func(c *call, p unsafe.Pointer) error {
		return curand.CurandGenerateLogNormalDouble(c.state.raw, (*float64)(p), c.n, c.with.mean, c.with.stddev)
	}}
)

// mostLambda is cuRAND's limit.
const mostLambda = 400000

// Poisson fills b with numbers of the Poisson distribution, in the order of the stream. Unlike the other functions, it
// waits for the work of the context and for its own: cuRAND makes a table for lambda on the legacy stream.
//
// It returns [safe.ErrRange] unless lambda is above 0 and at most 400,000, and [safe.ErrCapturing] while a stream of
// the context captures. Source: curandGeneratePoisson.
func Poisson(g *Generator, s *safe.Stream, b *safe.Buffer[uint32], lambda float64) error {
	const op = "random.Poisson"
	if !(lambda > 0 && lambda <= mostLambda) {
		return library.Refuse(op, safe.ErrRange, "lambda is %v, not above 0 and at most %d", lambda, mostLambda)
	}
	return fill(g, op, s, b, &poisson, parameters{mean: lambda})
}

var poisson = distribution{alone: true, generate: func(c *call, p unsafe.Pointer) error {
	return curand.CurandGeneratePoisson(c.state.raw, (*uint32)(p), c.n, c.with.mean)
}}

// Bits enqueues numbers in which all bits are random. [Sobol32] and [ScrambledSobol32] have
// uint32 only, [Sobol64] and [ScrambledSobol64] uint64 only, and return [safe.ErrNotSupported] for the other. A uint64
// of a pseudo-random kind is two numbers of 32 bits.
// Source: curandGenerate, curandGenerateLongLong.
func Bits[T Word](g *Generator, s *safe.Stream, b *safe.Buffer[T]) error {
	return fill(g, "random.Bits", s, b, of[T](&bits32, &bits64), parameters{})
}

var (
	bits32 = distribution{address: safe.Symbol(curand.Library, "curandGenerate"), bits: 32, generate: func(c *call, p unsafe.Pointer) error {
		return curand.CurandGenerate(c.state.raw, (*uint32)(p), c.n)
	}}
	bits64 = distribution{bits: 64, twice: true, generate: func(c *call, p unsafe.Pointer) error {
		if c.state.kind.quasi() {
			return curand.CurandGenerateLongLong(c.state.raw, (*uint64)(p), c.n)
		}
		return curand.CurandGenerate(c.state.raw, (*uint32)(p), 2*c.n)
	}}
)

// of selects the distribution of a type of 32 or of 64 bits.
func of[T Float | Word](narrow, wide *distribution) *distribution {
	if unsafe.Sizeof(*new(T)) == 4 {
		return narrow
	}
	return wide
}

// moments checks the parameters of a normal distribution.
func moments[T Float](op string, mean, stddev T) error {
	m, d := float64(mean), float64(stddev)
	if !(d >= 0) || math.IsInf(d, 0) || math.IsInf(m, 0) || math.IsNaN(m) {
		return library.Refuse(op, safe.ErrInvalidArgument, "mean is %v, stddev %v", m, d)
	}
	return nil
}

// distribution is how cuRAND generates values of one distribution and type.
type distribution struct {
	pairs bool // pseudo-random kinds make pairs
	alone bool // no stream of the context may capture meanwhile
	bits  int  // of a number of Bits
	twice bool // pseudo-random kinds take two numbers for a value
	// address returns the address of cuRAND's function, or 0. Nil if several serve, or if none can be called so.
	address func() uintptr
	single  bool // its parameters are of type float
	// generate generates the call's n values at p.
	generate func(c *call, p unsafe.Pointer) error
}

// parameters are those of a distribution that has any.
type parameters struct{ mean, stddev float64 }

// call is a call of cuRAND. Calls are pooled, so that none allocates.
type call struct {
	library.Call // its Memory is what cuRAND fills, if it cannot fill the target
	*distribution
	with   parameters
	state  *state
	target driver.CUdeviceptr
	size   uint64 // of the target in bytes
	n      uint64 // values to generate
	raw    [2]safe.RawCall
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.Do, c.Prepare, c.Called = c.run, c.prepare, c.called
	return c
}}

// eventRecord is the address of cuEventRecord, or 0.
var eventRecord = safe.Symbol(driver.Library, "cuEventRecord")

// prepare returns the calls that run makes, if run makes no others. It locks the state then, until called.
func (c *call) prepare(at library.Place) []safe.RawCall {
	g := c.state
	g.mu.Lock()
	if c.address == nil || c.n == 0 || c.Memory > 0 || g.capture != 0 || g.stream != at.Stream || !g.used || g.last.Value() != c.Stream {
		g.mu.Unlock()
		return nil
	}
	floats := [2]uint64{math.Float64bits(c.with.mean), math.Float64bits(c.with.stddev)}
	if c.single {
		floats = [2]uint64{uint64(math.Float32bits(float32(c.with.mean))), uint64(math.Float32bits(float32(c.with.stddev)))}
	}
	c.raw[0] = safe.RawCall{Address: c.address(), Args: [8]uint64{uint64(g.raw), uint64(c.target), c.n}, Floats: floats}
	c.raw[1] = safe.RawCall{Address: eventRecord(), Args: [8]uint64{uint64(g.event), uint64(at.Stream)}, Always: true}
	return c.raw[:]
}

// called notes what the calls have done, and returns their error.
func (c *call) called(made bool) (err error) {
	defer c.state.mu.Unlock()
	if !made {
		return nil
	}
	c.state.place += c.n
	if r := c.raw[0].Result; r != 0 {
		err = curand.CurandStatus(r)
	}
	if r := c.raw[1].Result; r != 0 {
		err = errors.Join(err, driver.CUresult(r))
	}
	return err
}

// callPlaces is how many kernels and copies a call enqueues at most: mostly it is one kernel.
const callPlaces = 8

// fill enqueues a call that fills b.
func fill[T any](g *Generator, op string, s *safe.Stream, b *safe.Buffer[T], d *distribution, with parameters) error {
	if g == nil || g.object == nil {
		return library.Rename(op, safe.ErrClosed)
	}
	c := calls.Get().(*call)
	c.distribution, c.with, c.state = d, with, g.state
	c.Object, c.Stream, c.Places, c.NoHandle = g.object, s, callPlaces, true // run has a lock of its own
	c.Uses = append(c.Uses, b.Arg())
	err := c.plan(b.Raw(), uint64(b.Len()), b.Size())
	switch {
	case err != nil:
	case d.alone:
		err = c.complete()
	default:
		err = c.Submit()
	}
	c.Reset()
	c.state = nil // calls in the pool keep nothing alive
	calls.Put(c)
	if err == nil {
		return nil
	}
	var status curand.CurandStatus
	if err = library.Rename(op, err); errors.As(err, &status) && err.(*safe.Error).Detail == "" {
		return library.Refuse(op, err.(*safe.Error).Err, "%d of %T by %v", b.Len(), *new(T), g.state.kind)
	}
	return err
}

// align is what cuRAND's stores of vectors need.
const align = 16

// plan decides whether the target, n values in size bytes, suits cuRAND.
func (c *call) plan(target driver.CUdeviceptr, n, size uint64) error {
	k, d := c.state.kind, uint64(c.state.dimensions())
	switch {
	case c.bits != 0 && k.quasi() && c.bits != kinds[k].bits:
		return library.Refuse("", safe.ErrNotSupported, "%v has numbers of %d bits", k, kinds[k].bits)
	case n%d != 0:
		return library.Refuse("", safe.ErrRange, "%d values are no multiple of %d dimensions", n, d)
	}
	c.target, c.n, c.size = target, n, size
	odd := c.pairs && !k.quasi() && n%2 != 0
	if odd {
		c.n++
	}
	if n > 0 && (odd || uint64(target)%align != 0) {
		c.Memory = int(size / n * c.n)
	}
	return nil
}

// complete calls cuRAND while no stream of the context captures, and waits for the work.
func (c *call) complete() error {
	if err := c.Object.Matches(c.Stream); err != nil {
		return err
	}
	// It checks that the stream is open and that the device may access the memory.
	if err := c.Stream.EnqueueRaw(func(driver.CUstream) error { return nil }, c.Uses...); err != nil {
		return err
	}
	release, err := safe.Retain(c.Uses...)
	if err != nil {
		return err
	}
	defer release()
	if c.n == 0 {
		return nil
	}
	p := c.target
	if c.Memory > 0 {
		work, err := safe.NewBuffer[byte](c.Object.Context(), c.Memory)
		if err != nil {
			return err
		}
		defer work.Close()
		p = work.Raw()
	}
	return c.Object.Whole(func() error { return c.state.complete(c, p) })
}

// complete calls cuRAND, and waits for all work of the context.
func (g *state) complete(c *call, p driver.CUdeviceptr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.capture != 0 {
		return library.Refuse("", safe.ErrInUse, "%s", belongs)
	}
	if err := driver.CuCtxSynchronize(); err != nil { // streams need not wait for the legacy one
		return err
	}
	if err := g.setStream(0); err != nil {
		return err
	}
	err := g.generate(c, p)
	if err == nil && p != c.target {
		err = driver.CuMemcpyDtoD(c.target, p, c.size)
	}
	g.used = false
	return errors.Join(err, driver.CuCtxSynchronize())
}

// run is called while the stream's captures neither begin nor end.
func (c *call) run(at library.Place) error {
	if c.n == 0 {
		return nil
	}
	if c.Memory == 0 {
		return c.state.enqueue(c, at, c.target)
	}
	if err := c.state.enqueue(c, at, at.Memory); err != nil {
		return err
	}
	return driver.CuMemcpyDtoDAsync(c.target, at.Memory, c.size, at.Stream)
}

// enqueue calls cuRAND at the generator's place, after the work that used its state last.
func (g *state) enqueue(c *call, at library.Place, p driver.CUdeviceptr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.Capture != 0 && g.kind == MTGP32 {
		return library.Refuse("", safe.ErrNotSupported, "MTGP32 in a capture: launches of the graph would repeat numbers")
	}
	if err := g.join(at.Capture); err != nil {
		return err
	}
	stream := weak.Make(c.Stream)
	if g.used && (g.last != stream || g.stream != at.Stream) { // the program may write another stream into that
		if err := driver.CuStreamWaitEvent(at.Stream, g.event, 0); err != nil {
			return err
		}
	}
	if err := g.setStream(at.Stream); err != nil {
		return err
	}
	err := g.generate(c, p)
	if err == nil && at.Capture != 0 {
		err = g.completeGroup()
	}
	g.last, g.used = stream, true
	return errors.Join(err, driver.CuEventRecord(g.event, at.Stream))
}

// setStream sets cuRAND's stream, unless it is that of the last call.
func (g *state) setStream(raw driver.CUstream) error {
	if g.stream == raw {
		return nil
	}
	if err := curand.CurandSetStream(g.raw, raw); err != nil {
		return err
	}
	g.stream = raw
	return nil
}

// generate calls cuRAND.
func (g *state) generate(c *call, p driver.CUdeviceptr) error {
	g.place += c.n
	if c.twice {
		g.place += c.n
	}
	return c.generate(c, ffi.Pointer(p))
}

// completeGroup takes the rest of a group of Philox. A launch of a graph moves the state on the device by complete groups
// alone: the next launch would repeat the numbers of an incomplete one at the end.
func (g *state) completeGroup() error {
	n := -g.place % group
	if g.kind != Philox || n == 0 {
		return nil
	}
	g.place += n
	return curand.CurandGenerate(g.raw, (*uint32)(ffi.Pointer(g.rest)), n)
}

// join makes the generator belong to the graph that a call is captured in. From then on, only the
// launches of that graph use its state, so their order is that of the numbers.
func (g *state) join(capture uint64) error {
	switch g.capture {
	case capture:
		return nil
	case 0:
	default:
		return library.Refuse("", safe.ErrInUse, "%s", belongs)
	}
	if g.used { // the graph may be launched on any stream
		if err := driver.CuEventSynchronize(g.event); err != nil {
			return err
		}
	}
	g.capture, g.used = capture, false
	return nil
}
