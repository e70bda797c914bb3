package main

import (
	"context"
	"errors"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/cudabind/cudabind/cuda/vector"
)

//go:generate go run ../../tools/kernels -doubles kernels.cu

// Permalloy.
const (
	saturation = 8e5     // A/m
	stiffness  = 1.3e-11 // of exchange, J/m
	vacuum     = 1.25663706e-6

	// exchangeSquare is the square of the exchange length, in m².
	exchangeSquare = 2 * stiffness / (vacuum * saturation * saturation)
	// picosecond is a time in the unit of the kernels, 1 / (gyromagnetic ratio * saturation).
	picosecond = 2.211e5 * saturation * 1e-12
)

// A solver moves the magnetization of one film. Names are those of kernels.cu.
type solver struct {
	film     Film
	kernels  *Kernels
	stream   *safe.Stream
	plan     *fft.Plan[float32, complex64] // of three padded planes
	tensor   *safe.Buffer[float32]         // its spectrum, which is real
	spectrum *safe.Buffer[complex64]
	pairs    *safe.Buffer[vector.Float2] // the same memory, as kernels take it
	m, sum   *safe.Buffer[float32]
	now      [2]*safe.Buffer[float32] // padded; a stage reads one and writes the other
	field    *safe.Buffer[float32]    // padded
	total    *safe.Buffer[float64]    // energy
	step     *safe.GraphExec          // of the duration dt
}

// newSolver makes a solver of a film of square cells, in meters. Close it before [safe.Context.CloseAll], which
// closes all else.
func newSolver(ctx context.Context, x *safe.Context, width, height int, cell size, damping, dt float32) (_ *solver, err error) {
	exchange := exchangeSquare / (cell[0] * cell[0])
	s := &solver{film: Film{int32(width), int32(height), float32(exchange), damping}}
	if s.stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	if s.kernels, err = LoadKernels(ctx, x, compile.Options{}); err != nil {
		return nil, err
	}
	if s.plan, err = fft.New[float32, complex64](x, s.shape(3), fft.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.tensor, err = s.upload(x, demagnetization(width, height, cell)); err != nil {
		return nil, err
	}
	padded, half := s.plan.Lens()
	var errs [7]error
	s.spectrum, errs[0] = safe.NewBuffer[complex64](x, half)
	s.m, errs[1] = safe.NewBuffer[float32](x, 3*width*height)
	s.sum, errs[2] = safe.NewBuffer[float32](x, 3*width*height)
	s.now[0], errs[3] = safe.NewZeroed[float32](x, padded)
	s.now[1], errs[4] = safe.NewZeroed[float32](x, padded)
	s.field, errs[5] = safe.NewBuffer[float32](x, padded)
	s.total, errs[6] = safe.NewBuffer[float64](x, 1)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if s.pairs, err = safe.Cast[vector.Float2](s.spectrum); err != nil {
		return nil, err
	}
	s.step, err = s.stream.CaptureExecutable(func() error { return s.advance(dt) })
	return s, err
}

// shape is that of some padded planes.
func (s *solver) shape(planes int) fft.Shape {
	return fft.Shape{N: []int{2 * int(s.film.Height), 2 * int(s.film.Width)}, Batch: planes}
}

// upload returns the spectrum of the demagnetizing tensor, in double precision until it is rounded. It is divided by
// the number of padded cells, as transforms there and back multiply by that.
func (s *solver) upload(x *safe.Context, tensor []float64) (*safe.Buffer[float32], error) {
	planes, err := safe.Upload(x, tensor)
	if err != nil {
		return nil, err
	}
	defer planes.Close()
	p, err := fft.New[float64, complex128](x, s.shape(4), fft.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	_, n := p.Lens()
	spectrum, err := safe.NewBuffer[complex128](x, n)
	if err != nil {
		return nil, err
	}
	defer spectrum.Close()
	if err := p.Forward(s.stream, planes, spectrum); err != nil {
		return nil, err
	}
	values, err := spectrum.Download()
	if err != nil {
		return nil, err
	}
	scaled := make([]float32, n)
	for i, v := range values { // which are real, as the tensor of opposite distances is the same
		scaled[i] = float32(real(v) / float64(len(tensor)/4))
	}
	return safe.Upload(x, scaled)
}

// close closes the plan, which CloseAll does not.
func (s *solver) close() error { return s.plan.Close() }

// demagnetize enqueues the field of a padded magnetization: a convolution with the tensor.
func (s *solver) demagnetize(m *safe.Buffer[float32]) error {
	if err := s.plan.Forward(s.stream, m, s.spectrum); err != nil {
		return err
	}
	plane := s.spectrum.Len() / 3
	if err := s.kernels.Multiply.Launch(s.stream, safe.Threads(plane), s.tensor, s.pairs, int32(plane)); err != nil {
		return err
	}
	return s.plan.Inverse(s.stream, s.spectrum, s.field)
}

// advance enqueues a step of the duration dt.
func (s *solver) advance(dt float32) error {
	for stage := range 4 {
		now, next := s.now[stage%2], s.now[1-stage%2]
		if err := s.demagnetize(now); err != nil {
			return err
		}
		if err := s.kernels.Advance.Launch(s.stream, s.cells(), s.film, int32(stage), dt, now, s.field, s.m, s.sum, next); err != nil {
			return err
		}
	}
	return nil
}

// cells has a thread for each cell.
func (s *solver) cells() safe.LaunchConfig {
	return safe.Threads2D(int(s.film.Width), int(s.film.Height))
}

// run launches some steps.
func (s *solver) run(steps int) error {
	for range steps {
		if err := s.step.Launch(s.stream); err != nil {
			return err
		}
	}
	return nil
}

// magnetize sets the magnetization, three planes.
func (s *solver) magnetize(m []float32) error {
	width := int(s.film.Width)
	padded := make([]float32, s.now[0].Len())
	for y := range len(m) / width { // of all planes: one has as many rows beyond the film
		height := int(s.film.Height)
		copy(padded[(y/height*2*height+y%height)*2*width:], m[y*width:(y+1)*width])
	}
	return errors.Join(s.m.CopyFromHost(m), s.now[0].CopyFromHost(padded))
}

// energy waits for the steps and returns the energy, in Joules for cells of a volume.
func (s *solver) energy(volume float64) (float64, error) {
	if err := s.demagnetize(s.now[0]); err != nil {
		return 0, err
	}
	if err := s.total.FillAsync(s.stream, 0); err != nil {
		return 0, err
	}
	if err := s.kernels.Energy.Launch(s.stream, s.cells(), s.film, s.now[0], s.field, s.total); err != nil {
		return 0, err
	}
	total, err := s.total.Download()
	if err != nil {
		return 0, err
	}
	return total[0] * vacuum * saturation * saturation * volume, nil
}
