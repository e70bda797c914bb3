//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"math"
	"testing"

	"github.com/cudabind/cudabind/cuda/vector"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
)

// doubles are the kernels of kernels.cu for the simulated driver.
var doubles = KernelsDoubles{
	Multiply: func(_ sim.Grid, tensor []float32, spectrum []vector.Float2, plane int32) {
		n := int(plane)
		for i := range n {
			xx, yy, zz, xy := tensor[i], tensor[i+n], tensor[i+2*n], tensor[i+3*n]
			x, y, z := spectrum[i], spectrum[i+n], spectrum[i+2*n]
			spectrum[i] = vector.Float2{X: -xx*x.X - xy*y.X, Y: -xx*x.Y - xy*y.Y}
			spectrum[i+n] = vector.Float2{X: -xy*x.X - yy*y.X, Y: -xy*x.Y - yy*y.Y}
			spectrum[i+2*n] = vector.Float2{X: -zz * z.X, Y: -zz * z.Y}
		}
	},
	Advance: func(_ sim.Grid, film Film, stage int32, dt float32, now, demagnetizing, m, sum, next []float32) {
		f := newHost(film)
		from, end := f.vectors(m, 1), []vec(nil)
		slopes := f.slopes(f.vectors(now, 2), f.vectors(demagnetizing, 2))
		total := make([]vec, len(from))
		if stage > 0 {
			total = f.vectors(sum, 1)
		}
		for i, slope := range slopes {
			total[i] = total[i].plus([]float64{1. / 6, 1. / 3, 1. / 3, 1. / 6}[stage]*float64(dt), slope)
			v := from[i].plus([]float64{0.5, 0.5, 1, 0}[stage]*float64(dt), slope)
			if stage == 3 {
				v = from[i].plus(1, total[i]).unit()
			}
			end = append(end, v)
		}
		f.store(sum, 1, total)
		f.store(next, 2, end)
		if stage == 3 {
			f.store(m, 1, end)
		}
	},
	Energy: func(_ sim.Grid, film Film, now, demagnetizing []float32, sum []float64) {
		f := newHost(film)
		sum[0] += f.energy(f.vectors(now, 2), f.vectors(demagnetizing, 2))
	},
}

type vec [3]float64

func (a vec) plus(s float64, b vec) vec { return vec{a[0] + s*b[0], a[1] + s*b[1], a[2] + s*b[2]} }
func (a vec) dot(b vec) float64         { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }
func (a vec) unit() vec                 { return vec{}.plus(1/math.Sqrt(a.dot(a)), a) }
func (a vec) cross(b vec) vec {
	return vec{a[1]*b[2] - a[2]*b[1], a[2]*b[0] - a[0]*b[2], a[0]*b[1] - a[1]*b[0]}
}

// host is a film on the host, in float64.
type host struct {
	width, height     int
	exchange, damping float64
	tensor            []float64
}

func newHost(f Film) *host {
	return &host{int(f.Width), int(f.Height), float64(f.Exchange), float64(f.Damping), nil}
}

// vectors reads planes that are times as wide and high as the film.
func (h *host) vectors(planes []float32, times int) (all []vec) {
	plane := times * times * h.width * h.height
	for y := range h.height {
		for x := range h.width {
			i := y*times*h.width + x
			all = append(all, vec{float64(planes[i]), float64(planes[i+plane]), float64(planes[i+2*plane])})
		}
	}
	return all
}

func (h *host) store(planes []float32, times int, all []vec) {
	plane := times * times * h.width * h.height
	for i, v := range all {
		at := i/h.width*times*h.width + i%h.width
		planes[at], planes[at+plane], planes[at+2*plane] = float32(v[0]), float32(v[1]), float32(v[2])
	}
}

// demagnetizing is the field of all cells at each cell, a sum of width² * height² products.
func (h *host) demagnetizing(m []vec) []vec {
	row, plane := 2*h.width, 4*h.width*h.height
	field := make([]vec, len(m))
	for i := range field {
		for j, from := range m {
			x, y := i%h.width-j%h.width, i/h.width-j/h.width
			at := (y+2*h.height)%(2*h.height)*row + (x+row)%row
			xx, yy, zz, xy := h.tensor[at], h.tensor[at+plane], h.tensor[at+2*plane], h.tensor[at+3*plane]
			field[i] = field[i].plus(-1, vec{xx*from[0] + xy*from[1], xy*from[0] + yy*from[1], zz * from[2]})
		}
	}
	return field
}

// field adds the exchange field of each cell.
func (h *host) field(m, demagnetizing []vec) []vec {
	all := make([]vec, len(m))
	for i := range m {
		x, y := i%h.width, i/h.width
		all[i] = demagnetizing[i]
		for _, d := range [][2]int{{-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
			if nx, ny := x+d[0], y+d[1]; nx >= 0 && nx < h.width && ny >= 0 && ny < h.height {
				all[i] = all[i].plus(h.exchange, m[ny*h.width+nx].plus(-1, m[i]))
			}
		}
	}
	return all
}

// slopes is dm/dt.
func (h *host) slopes(m, demagnetizing []vec) []vec {
	all := h.field(m, demagnetizing)
	for i, field := range all {
		torque := m[i].cross(field)
		all[i] = vec{}.plus(-1/(1+h.damping*h.damping), torque.plus(h.damping, m[i].cross(torque)))
	}
	return all
}

func (h *host) energy(m, demagnetizing []vec) (sum float64) {
	for i, field := range h.field(m, demagnetizing) {
		sum -= 0.5 * m[i].dot(field)
	}
	return sum
}

// step is a Runge-Kutta step.
func (h *host) step(m []vec, dt float64) []vec {
	slopes := func(m []vec) []vec { return h.slopes(m, h.demagnetizing(m)) }
	at := func(part float64, k []vec) []vec {
		all := make([]vec, len(m))
		for i := range m {
			all[i] = m[i].plus(part*dt, k[i])
		}
		return all
	}
	k1 := slopes(m)
	k2 := slopes(at(0.5, k1))
	k3 := slopes(at(0.5, k2))
	k4 := slopes(at(1, k3))
	end := make([]vec, len(m))
	for i := range m {
		end[i] = m[i].plus(dt/6, k1[i]).plus(dt/3, k2[i]).plus(dt/3, k3[i]).plus(dt/6, k4[i]).unit()
	}
	return end
}

// TestTensor compares the tensor with what is known about it.
func TestTensor(t *testing.T) {
	trace := func(n [4]float64) float64 { return n[0] + n[1] + n[2] }
	cube := between(0, 0, size{2, 2, 2})
	for i, want := range []float64{1. / 3, 1. / 3, 1. / 3, 0} {
		assert.InDelta(t, want, cube[i], 1e-12, "a cube has no direction")
	}
	flat := between(0, 0, size{1000, 1000, 1})
	assert.InDelta(t, 1, flat[2], 0.01, "a plane")
	assert.InDelta(t, 1, trace(flat), 1e-5)
	for _, at := range [][2]float64{{1, 0}, {0, 3}, {4, 2}, {7, 9}, {60, 3}} {
		assert.InDelta(t, 0, trace(between(at[0], at[1], size{1, 1, 5})), 1e-9, "no charges inside of another cell")
	}
	for _, at := range [][2]float64{{49, 1}, {30, 38}, {-3, 49.5}} { // Newell's formulas have digits here
		near, far := between(at[0], at[1], size{1, 1, 5}), dipoles(at[0], at[1], size{1, 1, 5})
		for i := range near {
			assert.InDelta(t, 0, near[i]-far[i], 1e-3*math.Abs(near[2]), "element %d at %v", i, at)
		}
	}
	planes, row := demagnetization(3, 2, size{1, 1, 1}), 6
	at := func(i, x, y int) float64 { return planes[i*24+(y+4)%4*row+(x+6)%6] }
	assert.Positive(t, at(3, 1, -1))
	assert.Negative(t, at(3, 1, 1))
	for i := range 4 {
		for x := range 3 {
			for y := range 2 {
				assert.InDelta(t, at(i, x, y), at(i, -x, -y), 1e-15, "element %d at %d, %d", i, x, y)
			}
		}
	}
}
