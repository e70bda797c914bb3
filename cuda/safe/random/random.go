package random

import (
	"errors"
	"fmt"
	"sync"
	"weak"

	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// Kind is an algorithm.
type Kind int

// The algorithms. Those up to MTGP32 are pseudo-random, and have a seed. Those from Sobol32 on
// are quasi-random: they fill a space evenly.
const (
	// Philox is fast, and made for many parallel sequences: use it unless you need another.
	Philox Kind = iota
	// XORWOW is what cuRAND takes by default.
	XORWOW
	// MRG32k3a combines two recursions.
	MRG32k3a
	// MTGP32 is a Mersenne Twister. It has no offset.
	MTGP32
	// Sobol32 is the Sobol sequence, of 32 bits.
	Sobol32
	// ScrambledSobol32 is Sobol32 with scrambled digits.
	ScrambledSobol32
	// Sobol64 is the Sobol sequence, of 64 bits.
	Sobol64
	// ScrambledSobol64 is Sobol64 with scrambled digits.
	ScrambledSobol64
)

// kinds is what the functions need to know about the algorithms.
var kinds = [...]struct {
	name string
	raw  curand.CurandRngType_t
	bits int // of a number of Bits; 64 stands for them alone
}{
	Philox:           {"Philox", curand.CURAND_RNG_PSEUDO_PHILOX4_32_10, 32},
	XORWOW:           {"XORWOW", curand.CURAND_RNG_PSEUDO_XORWOW, 32},
	MRG32k3a:         {"MRG32k3a", curand.CURAND_RNG_PSEUDO_MRG32K3A, 32},
	MTGP32:           {"MTGP32", curand.CURAND_RNG_PSEUDO_MTGP32, 32},
	Sobol32:          {"Sobol32", curand.CURAND_RNG_QUASI_SOBOL32, 32},
	ScrambledSobol32: {"ScrambledSobol32", curand.CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, 32},
	Sobol64:          {"Sobol64", curand.CURAND_RNG_QUASI_SOBOL64, 64},
	ScrambledSobol64: {"ScrambledSobol64", curand.CURAND_RNG_QUASI_SCRAMBLED_SOBOL64, 64},
}

// String returns the name of the constant.
func (k Kind) String() string {
	if !k.valid() {
		return "unknown"
	}
	return kinds[k].name
}

func (k Kind) valid() bool  { return k >= Philox && k <= ScrambledSobol64 }
func (k Kind) quasi() bool  { return k >= Sobol32 }
func (k Kind) offset() bool { return k != MTGP32 }

// Options are the options of [New].
type Options struct {
	// Seed selects the sequence of a pseudo-random kind.
	Seed uint64
	// Offset is where the sequence begins: see [Generator.Seek].
	Offset uint64
	// Dimensions is for quasi-random kinds, 0 for 1, at most 20,000. The length of a buffer
	// must be a multiple of it: the numbers of the first dimension come first.
	Dimensions int
}

// mostDimensions is the size of cuRAND's tables for Sobol sequences.
const mostDimensions = 20000

// Generator is a sequence of random numbers. Each call takes the next ones in the order of the calls, whatever streams
// they are on: the numbers depend on the seed, the offset and the calls before. Any number of goroutines may use a
// Generator, but then the order of their calls is not determined.
//
// A Generator keeps its context: [safe.Context.Close] before [Generator.Close] is fine.
type Generator struct {
	object *library.Object
	state  *state
}

// state is what cuRAND and the driver have created. It knows nothing of the Generator, which the garbage collector would
// never find dropped.
type state struct {
	kind Kind
	o    Options

	mu     sync.Mutex // taken inside EnqueueRaw: whoever has it waits for nothing of this process
	raw    curand.CurandGenerator_t
	stream driver.CUstream           // of raw
	event  driver.CUevent            // after the work that used the state last
	last   weak.Pointer[safe.Stream] // which it was on
	used   bool

	capture uint64 // the generator belongs to its graph

	place uint64             // of Philox: the next number of the sequence
	rest  driver.CUdeviceptr // of Philox: room for a group of numbers
}

// group is how many numbers of Philox belong together: see state.completeGroup.
const group = 4

// New creates a generator. That is slow, and may wait for all work of the context.
//
// It returns [safe.ErrCapturing] while a stream of the context is capturing, [safe.ErrNotSupported] if the kind does
// not have an option that is set, and [safe.ErrRange] if Dimensions is out of range. If there is no cuRAND, it returns
// an error that matches [safe.ErrNotSupported] and lists where it has looked. Source: curandCreateGenerator,
// curandSetPseudoRandomGeneratorSeed, curandSetGeneratorOffset, curandSetQuasiRandomGeneratorDimensions,
// curandGenerateSeeds.
func New(x *safe.Context, k Kind, o Options) (*Generator, error) {
	const op = "random.New"
	if err := k.check(o); err != nil {
		return nil, library.Rename(op, err)
	}
	if err := library.Load(curand.Open, curand.Library); err != nil {
		return nil, library.Rename(op, err)
	}
	g := &state{kind: k, o: o}
	object, err := library.New(x, library.Options{
		Name:        "generator",
		Create:      g.create,
		Destroy:     g.destroy,
		OutOfMemory: curand.CURAND_STATUS_ALLOCATION_FAILED,
	})
	if err != nil {
		return nil, library.Rename(op, err)
	}
	return &Generator{object, g}, nil
}

func (k Kind) check(o Options) error {
	switch {
	case !k.valid():
		return library.Refuse("", safe.ErrInvalidArgument, "%d is no constant of Kind", int(k))
	case o.Dimensions < 0 || o.Dimensions > mostDimensions:
		return library.Refuse("", safe.ErrRange, "Options.Dimensions is %d, not 0 to %d", o.Dimensions, mostDimensions)
	case o.Dimensions > 0 && !k.quasi():
		return library.Refuse("", safe.ErrNotSupported, "%v has no dimensions", k)
	case o.Seed != 0 && k.quasi():
		return library.Refuse("", safe.ErrNotSupported, "%v has no seed", k)
	case o.Offset != 0 && !k.offset():
		return library.Refuse("", safe.ErrNotSupported, "%v has no offset", k)
	}
	return nil
}

// create creates all that a generator needs, or nothing. It also sets up the state, which the first call would do otherwise,
// perhaps in a capture.
func (g *state) create() error {
	err := g.prepare()
	if err != nil {
		err = errors.Join(err, g.destroy())
	}
	return err
}

func (g *state) prepare() error {
	if err := driver.CuEventCreate(&g.event, driver.CU_EVENT_DISABLE_TIMING); err != nil {
		return err
	}
	if err := curand.CurandCreateGenerator(&g.raw, kinds[g.kind].raw); err != nil {
		return err
	}
	if g.kind == Philox {
		if err := driver.CuMemAlloc(&g.rest, 4*group); err != nil {
			return err
		}
	}
	if g.kind.quasi() {
		if err := curand.CurandSetQuasiRandomGeneratorDimensions(g.raw, uint32(g.dimensions())); err != nil {
			return err
		}
	} else if err := curand.CurandSetPseudoRandomGeneratorSeed(g.raw, g.o.Seed); err != nil {
		return err
	}
	return g.begin(g.o.Offset)
}

// begin sets the state up for the nth number. No stream of the context captures: cuRAND uses the legacy stream, for which
// other streams need not wait, nor it for them.
func (g *state) begin(n uint64) error {
	if err := driver.CuCtxSynchronize(); err != nil {
		return err
	}
	g.place = n
	if err := g.setStream(0); err != nil { // its last one may be closed
		return err
	}
	if g.kind.offset() {
		if err := curand.CurandSetGeneratorOffset(g.raw, n); err != nil {
			return err
		}
	}
	if err := curand.CurandGenerateSeeds(g.raw); err != nil && !errors.Is(err, curand.CURAND_STATUS_TYPE_ERROR) {
		return err
	}
	return driver.CuCtxSynchronize()
}

// destroy destroys what there is, and forgets it, as create may be called again.
func (g *state) destroy() (err error) {
	if g.raw != 0 {
		err = errors.Join(g.setStream(0), curand.CurandDestroyGenerator(g.raw)) // its last stream may be closed
	}
	if g.rest != 0 {
		err = errors.Join(err, driver.CuMemFree(g.rest))
	}
	if g.event != 0 {
		err = errors.Join(err, driver.CuEventDestroy(g.event))
	}
	g.raw, g.rest, g.event = 0, 0, 0
	return err
}

func (g *state) dimensions() int { return max(g.o.Dimensions, 1) }

// Close refuses further calls and does not wait. The generator is destroyed when the work, the graphs and the
// executables that use it are done. Closing again does nothing. Source: curandDestroyGenerator.
func (g *Generator) Close() error {
	if g == nil || g.object == nil {
		return nil
	}
	return library.Rename("random.Generator.Close", g.object.Close())
}

// Context returns a context that is usable as long as the Generator is open: see
// [safe.Stream.Context].
func (g *Generator) Context() *safe.Context {
	if g == nil || g.object == nil {
		return nil
	}
	return g.object.Context()
}

// String describes the generator for messages.
func (g *Generator) String() string {
	if g == nil || g.object == nil {
		return "Generator (never opened)"
	}
	return fmt.Sprintf("%v with seed %d on %v", g.state.kind, g.state.o.Seed, g.object.Context().Device())
}

// Seek makes n the place of the next number, from the beginning of the sequence.
//
// For [Philox] the next call gives what a single call from 0 would have at n, if both are of the same distribution and
// type. For [Bits] of uint64, n counts numbers of 32 bits. The same holds for quasi-random kinds, where n counts
// points. For [XORWOW] and [MRG32k3a] it holds for [Poisson], [Bits] of uint32 and [Uniform] of float32; other calls
// begin at a place that depends on n only. [MTGP32] returns [safe.ErrNotSupported].
//
// Seek waits for the work of the context, because cuRAND sets its state up on the legacy stream. It returns
// [safe.ErrCapturing] while a stream of the context captures, and [safe.ErrInUse] if the generator belongs to a graph.
// Source: curandSetGeneratorOffset, curandGenerateSeeds.
func (g *Generator) Seek(n uint64) error {
	const op = "random.Generator.Seek"
	if g == nil || g.object == nil {
		return library.Rename(op, safe.ErrClosed)
	}
	if !g.state.kind.offset() {
		return library.Refuse(op, safe.ErrNotSupported, "%v has no offset", g.state.kind)
	}
	return library.Rename(op, g.object.Whole(func() error {
		g.state.mu.Lock()
		defer g.state.mu.Unlock()
		if g.state.capture != 0 {
			return library.Refuse("", safe.ErrInUse, "%s", belongs)
		}
		return g.state.begin(n)
	}))
}

const belongs = "the generator belongs to the graph of a capture that used it: make one for each graph, and others for calls"
