package main

import "math"

// size is that of a cell: x, y and z.
type size [3]float64

// demagnetization returns the planes xx, yy, zz and xy of the tensor N by which a uniformly magnetized cell
// has the field -N m at the other cells of a film, one plane after the other. The planes have twice
// the width and the height of the film: a negative distance is at the end, as of a periodic function.
func demagnetization(width, height int, cell size) []float64 {
	row, plane := 2*width, 4*width*height
	planes := make([]float64, 4*plane)
	for y := range height {
		for x := range width {
			n := between(float64(x)*cell[0], float64(y)*cell[1], cell)
			for sx := range 2 { // of distances x and -x
				for sy := range 2 {
					at := (y+sy*2*(height-y))%(2*height)*row + (x+sx*2*(width-x))%row
					for i, v := range n {
						if i == 3 && sx != sy { // xy is odd in x and in y
							v = -v
						}
						planes[i*plane+at] = v
					}
				}
			}
		}
	}
	return planes
}

// between returns the elements xx, yy, zz and xy of the tensor of two cells at a distance.
func between(x, y float64, cell size) (n [4]float64) {
	// Newell's formulas are exact, but differences of large numbers: far cells have no digits left.
	if math.Hypot(x, y) > 10*max(cell[0], cell[1], cell[2]) {
		return dipoles(x, y, cell)
	}
	scale := 1 / (4 * math.Pi * cell[0] * cell[1] * cell[2])
	second := [3]float64{-1, 2, -1}
	for i, a := range second {
		for j, b := range second {
			for k, c := range second {
				x, y, z := x+float64(i-1)*cell[0], y+float64(j-1)*cell[1], float64(k-1)*cell[2]
				w := a * b * c * scale
				n[0] += w * newellF(x, y, z)
				n[1] += w * newellF(y, x, z)
				n[2] += w * newellF(z, y, x)
				n[3] += w * newellG(x, y, z)
			}
		}
	}
	return n
}

// dipoles is between of cells that are far from each other. The field is averaged over 8 distances, whose
// variance is that of the distance of two points in the cells.
func dipoles(x, y float64, cell size) (n [4]float64) {
	far := func(i, j, k int) {
		x, y, z := x+float64(i)*cell[0]/math.Sqrt(6), y+float64(j)*cell[1]/math.Sqrt(6), float64(k)*cell[2]/math.Sqrt(6)
		square := x*x + y*y + z*z
		w := cell[0] * cell[1] * cell[2] / (8 * 4 * math.Pi * square * square * math.Sqrt(square))
		n[0] += w * (square - 3*x*x)
		n[1] += w * (square - 3*y*y)
		n[2] += w * (square - 3*z*z)
		n[3] += w * -3 * x * y
	}
	for _, i := range []int{-1, 1} {
		for _, j := range []int{-1, 1} {
			far(i, j, -1)
			far(i, j, 1)
		}
	}
	return n
}

// newellF and newellG are the functions f and g of Newell, Williams and Dunlop, J. Geophys. Res. 98, 9551 (1993).
func newellF(x, y, z float64) float64 {
	r := math.Sqrt(x*x + y*y + z*z)
	return y/2*(z*z-x*x)*asinh(y, math.Hypot(x, z)) + z/2*(y*y-x*x)*asinh(z, math.Hypot(x, y)) -
		x*y*z*atan(y*z, x*r) + (2*x*x-y*y-z*z)/6*r
}

func newellG(x, y, z float64) float64 {
	r := math.Sqrt(x*x + y*y + z*z)
	return x*y*z*asinh(z, math.Hypot(x, y)) + y/6*(3*z*z-y*y)*asinh(x, math.Hypot(y, z)) + x/6*(3*z*z-x*x)*asinh(y, math.Hypot(x, z)) -
		z*z*z/6*atan(x*y, z*r) - z*y*y/2*atan(x*z, y*r) - z*x*x/2*atan(y*z, x*r) - x*y*r/3
}

// asinh and atan are those of a/b. Where b is 0, the factor in front is, too.
func asinh(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return math.Asinh(a / b)
}

func atan(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return math.Atan(a / b)
}
