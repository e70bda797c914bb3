package blas

import (
	"fmt"
	"math"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Matrix is a view of a buffer as a matrix. It is stored by row, as in Go and C: element
// (i, j), both from 0, is value Offset + i*Stride + j of the buffer. With ByColumn it is
// value Offset + i + j*Stride. Make one by [Rows] or fill in the fields; views are values,
// which nothing needs to close.
type Matrix[T Number] struct {
	Buffer     *safe.Buffer[T]
	Rows, Cols int
	Offset     int  // where element (0, 0) is in the buffer
	Stride     int  // from one row to the next, or with ByColumn from one column to the next; 0 if packed
	ByColumn   bool // stored by column, as in Fortran
	Conjugate  bool // every element is the conjugate of the stored one
}

// Rows returns the first rows*cols values of b as a matrix that is stored by row.
func Rows[T Number](b *safe.Buffer[T], rows, cols int) Matrix[T] {
	return Matrix[T]{Buffer: b, Rows: rows, Cols: cols}
}

// T returns the transpose, a view of the same memory.
func (m Matrix[T]) T() Matrix[T] {
	m.Stride = m.stride() // packed means another distance now
	m.Rows, m.Cols, m.ByColumn = m.Cols, m.Rows, !m.ByColumn
	return m
}

// H returns the conjugate transpose, a view of the same memory. For real types it is the
// same as [Matrix.T].
func (m Matrix[T]) H() Matrix[T] {
	m.Conjugate = !m.Conjugate
	return m.T()
}

// Sub returns the part of rows by cols elements whose first one is (i, j). It is not checked
// until an operation uses it.
func (m Matrix[T]) Sub(i, j, rows, cols int) Matrix[T] {
	m.Stride = m.stride()
	if i < 0 || j < 0 || rows < 0 || cols < 0 || i > m.Rows-rows || j > m.Cols-cols {
		m.Offset = -1 // every check refuses it
	} else if m.ByColumn {
		m.Offset += i + j*m.Stride
	} else {
		m.Offset += i*m.Stride + j
	}
	m.Rows, m.Cols = rows, cols
	return m
}

// Row returns row i as a vector.
func (m Matrix[T]) Row(i int) Vector[T] { return m.Sub(i, 0, 1, m.Cols).line(m.ByColumn, m.Cols) }

// Col returns column j as a vector.
func (m Matrix[T]) Col(j int) Vector[T] { return m.Sub(0, j, m.Rows, 1).line(!m.ByColumn, m.Rows) }

// line returns the only row or column as a vector.
func (m Matrix[T]) line(across bool, n int) Vector[T] {
	v := Vector[T]{Buffer: m.Buffer, N: n, Offset: m.Offset, Conjugate: m.Conjugate}
	if across {
		v.Step = m.Stride
	}
	return v
}

// stride returns the distance of rows, or of columns.
func (m Matrix[T]) stride() int {
	switch {
	case m.Stride != 0:
		return m.Stride
	case m.ByColumn:
		return max(m.Rows, 1)
	}
	return max(m.Cols, 1)
}

// String returns the shape and the type, such as "2x3 float32".
func (m Matrix[T]) String() string {
	s := fmt.Sprintf("%dx%d %v", m.Rows, m.Cols, kindOf[T]())
	if m.ByColumn {
		s += " by column"
	}
	if packed := (Matrix[T]{Rows: m.Rows, Cols: m.Cols, ByColumn: m.ByColumn}).stride(); m.stride() != packed {
		s += fmt.Sprintf(" with stride %d", m.Stride)
	}
	return s
}

// Stack is Count matrices of one shape: the first is Matrix, and each of the others begins
// Step values after the one before it.
type Stack[T Number] struct {
	Matrix[T]
	Count int
	Step  int // 0 if packed: as many values as one matrix occupies
}

// String returns the number, the shape and the type, such as "8 of 2x3 float32".
func (m Stack[T]) String() string {
	s := fmt.Sprintf("%d of %v", m.Count, m.Matrix)
	if m.Step != 0 {
		s += fmt.Sprintf(" with step %d", m.Step)
	}
	return s
}

// Vector is a view of a buffer as a vector: element i is value Offset + i*Step.
type Vector[T Number] struct {
	Buffer    *safe.Buffer[T]
	N         int
	Offset    int
	Step      int  // from one element to the next; 0 means 1
	Conjugate bool // every element is the conjugate of the stored one
}

// Vec returns all values of b as a vector.
func Vec[T Number](b *safe.Buffer[T]) Vector[T] { return Vector[T]{Buffer: b, N: b.Len()} }

func (v Vector[T]) step() int {
	if v.Step == 0 {
		return 1
	}
	return v.Step
}

// String returns the length and the type, such as "3 float32".
func (v Vector[T]) String() string {
	s := fmt.Sprintf("%d %v", v.N, kindOf[T]())
	if v.step() != 1 {
		s += fmt.Sprintf(" with step %d", v.Step)
	}
	return s
}

// column returns v as a matrix of one column.
func (v Vector[T]) column() Matrix[T] {
	return Matrix[T]{Buffer: v.Buffer, Rows: v.N, Cols: 1, Offset: v.Offset, Stride: v.step(), Conjugate: v.Conjugate}
}

// view is a matrix that was checked: a view of memory on the device.
type view struct {
	kind       *kind
	address    driver.CUdeviceptr // of element (0, 0)
	rows, cols int
	stride     int
	byColumn   bool
	conjugate  bool
}

// view checks that m is within its buffer.
func (m Matrix[T]) view(name string) (view, error) {
	v := view{kindOf[T](), 0, m.Rows, m.Cols, m.stride(), m.ByColumn, m.Conjugate && kindOf[T]().complex()}
	lines, length := v.lines()
	switch {
	case m.Rows < 0 || m.Cols < 0:
		return v, fmt.Errorf("%w: %s is %v, but a matrix has no negative size", safe.ErrRange, name, m)
	case v.stride < length:
		return v, fmt.Errorf("%w: %s is %v: the stride must be at least %d", safe.ErrRange, name, m, length)
	case m.Buffer.Len() > 0 && m.Buffer.Raw() == 0, m.Buffer == nil:
		return v, fmt.Errorf("%w: the buffer of %s", safe.ErrClosed, name)
	}
	have := m.Buffer.Len()
	if m.Offset < 0 {
		return v, fmt.Errorf("%w: %s is %v that begins before its buffer, or is a Sub, Row or Col beyond its matrix", safe.ErrRange, name, m)
	}
	if m.Offset > have || lines > 1 && v.stride > (math.MaxInt-length)/(lines-1) || v.span() > have-m.Offset {
		return v, fmt.Errorf("%w: %s is %v from value %d on, but its buffer has %d values", safe.ErrRange, name, m, m.Offset, have)
	}
	v.stride = min(v.stride, math.MaxInt/32) // of a single line, as bytes must not overflow
	if have > 0 {
		v.address = m.Buffer.Raw() + driver.CUdeviceptr(m.Offset)*driver.CUdeviceptr(v.kind.size)
	}
	return v, nil
}

// view checks that x is within its buffer.
func (x Vector[T]) view(name string) (view, error) {
	if x.Step < 0 || x.N < 0 {
		return view{}, fmt.Errorf("%w: %s is %v, but neither size nor step may be negative", safe.ErrRange, name, x)
	}
	v, err := x.column().view(name)
	if err != nil {
		err = fmt.Errorf("%w (%s is a vector: a column)", err, name)
	}
	return v, err
}

// lines returns how many rows or columns lie one after another, and how long they are.
func (v *view) lines() (n, length int) {
	if v.byColumn {
		return v.cols, v.rows
	}
	return v.rows, v.cols
}

// span returns from the first element to the last, in elements.
func (v *view) span() int {
	n, length := v.lines()
	if n == 0 || length == 0 {
		return 0
	}
	return (n-1)*v.stride + length
}

func (v *view) empty() bool { return v.rows == 0 || v.cols == 0 }

func (v *view) end() driver.CUdeviceptr { return v.at(v.span()) }

// at returns the address n elements after the first.
func (v *view) at(n int) driver.CUdeviceptr {
	return v.address + driver.CUdeviceptr(n)*driver.CUdeviceptr(v.kind.size)
}

// extent returns the memory of count matrices, from the first element to the last, as one row.
func (v *view) extent(step, count int) view {
	n := 0
	if count > 0 && !v.empty() {
		n = (count-1)*step + v.span()
	}
	return view{kind: v.kind, address: v.address, rows: 1, cols: n, stride: n}
}

// t returns the transpose.
func (v view) t() view {
	v.rows, v.cols, v.byColumn = v.cols, v.rows, !v.byColumn
	return v
}

// overlap returns whether an element of v is in the memory of one of o. Parts of one matrix
// that lie side by side do not overlap. For different strides, the whole memory counts from
// the first element to the last.
func (v *view) overlap(o *view) bool {
	if v.empty() || o.empty() || v.end() <= o.address || o.end() <= v.address {
		return false
	}
	_, mine := v.lines()
	_, its := o.lines()
	size, other := v.kind.size, o.kind.size
	stride := v.stride * size
	if stride != o.stride*other {
		return true
	}
	between := int(int64(o.address-v.address) % int64(stride)) // in bytes, from a line of v to one of o
	if between < 0 {
		between += stride
	}
	return between < mine*size || between+its*other > stride
}

// apart checks that an output does not overlap an input.
func apart(out *view, outName string, in *view, inName string) error {
	if !out.overlap(in) {
		return nil
	}
	return fmt.Errorf("%w: %s (%v) and %s (%v): cuBLAS would read what it has overwritten", safe.ErrOverlap, outName, out.String(), inName, in.String())
}

func (v *view) String() string {
	return fmt.Sprintf("%dx%d %v at %#x to %#x", v.rows, v.cols, v.kind, uint64(v.address), uint64(v.end()))
}
