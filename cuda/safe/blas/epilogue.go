package blas

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Epilogue is a function that [Matmul] applies to each element v of the result before it
// stores it.
type Epilogue int

const (
	None  Epilogue = iota // v
	ReLU                  // max(v, 0)
	GELU                  // v times the normal distribution at v, approximated by tanh
	DReLU                 // v times the gradient of ReLU where Aux was written
	DGELU                 // v times the gradient of GELU where Aux was written
)

// String returns the name of the constant.
func (e Epilogue) String() string {
	if e < None || e > DGELU {
		return "unknown"
	}
	return [...]string{"None", "ReLU", "GELU", "DReLU", "DGELU"}[e]
}

// AuxLen returns the length of MatmulOptions.Aux for a result of rows by cols elements. For
// [ReLU] and [DReLU] it is a Buffer of uint8 with a bit for each element, and for [GELU] and
// [DGELU] a Buffer of the result's type. It returns 0 for [None].
func AuxLen(e Epilogue, rows, cols int) int {
	switch stride := auxStride(e, cols); e {
	case ReLU, DReLU:
		return rows * stride / 8
	case GELU, DGELU:
		return rows * stride
	}
	return 0
}

// auxStride returns the distance of rows, in bits for ReLU.
func auxStride(e Epilogue, cols int) int {
	if e == ReLU || e == DReLU {
		return (cols + 127) &^ 127
	}
	return (cols + 7) &^ 7
}

// arrays checks the arrays of the options and lists them.
func (p *matmulCall) arrays(q *call, o *MatmulOptions, a, b, d *view) error {
	epilogue, err := o.epilogue()
	if err != nil {
		return err
	}
	k := &p.key
	k.epilogue = epilogue
	if epilogue != cublaslt.CUBLASLT_EPILOGUE_DEFAULT {
		if !d.byColumn && !d.kind.complex() && a.kind != kindInt8 {
			k.bias = d.kind.data
		} else {
			return fmt.Errorf("%w: an epilogue or an array needs real floating-point numbers, and a result that is stored by row", safe.ErrInvalidArgument)
		}
	}
	vector := d.kind
	if a.kind.float8() && d.kind != kindFloat16 {
		vector = kindBFloat16
	}
	k.bias = vector.data
	for _, v := range []struct {
		name  string
		array Array
		kind  *kind
		n     int
		out   bool
		to    int
	}{
		{"Bias", o.Bias, vector, d.cols, false, addressBias},
		{"BiasGrad", o.BiasGrad, vector, d.cols, true, addressBias},
		{"SumA", o.SumA, vector, d.rows, true, addressBias},
		{"SumB", o.SumB, vector, d.cols, true, addressBias},
		{"Aux", o.Aux, o.auxKind(d), AuxLen(o.Epilogue, d.rows, d.cols), o.Epilogue == ReLU || o.Epilogue == GELU, addressAux},
		{"ScaleA", array(o.ScaleA), kindFloat32, 1, false, scaleOf(d, addressScaleY)},
		{"ScaleB", array(o.ScaleB), kindFloat32, 1, false, scaleOf(d, addressScaleX)},
		{"ScaleD", array(o.ScaleD), kindFloat32, 1, false, addressScaleD},
		{"AmaxD", array(o.AmaxD), kindFloat32, 1, true, addressAmax},
	} {
		if v.array == nil {
			continue
		}
		if err := p.array(q, v.name, v.array, v.kind, v.n, v.out, v.to, a, b, d); err != nil {
			return err
		}
	}
	if o.Aux != nil {
		k.auxStride = int64(auxStride(o.Epilogue, d.cols))
	}
	k.fast = o.FastAccumulation
	if !a.kind.float8() && (o.ScaleA != nil || o.ScaleB != nil || o.FastAccumulation) || !d.kind.float8() && (o.ScaleD != nil || o.AmaxD != nil) {
		return fmt.Errorf("%w: scales, AmaxD and FastAccumulation are for matrices of 8-bit floating-point numbers", safe.ErrInvalidArgument)
	}
	return nil
}

// array converts a nil Buffer to a nil Array.
func array(b *safe.Buffer[float32]) Array {
	if b == nil {
		return nil
	}
	return b
}

// scaleOf exchanges the scales of x and y for a result that is stored by column.
func scaleOf(d *view, which int) int {
	if d.byColumn {
		return addressScaleX + addressScaleY - which
	}
	return which
}

func (o *MatmulOptions) auxKind(d *view) *kind {
	if o.Epilogue == ReLU || o.Epilogue == DReLU {
		return kindUint8
	}
	return d.kind
}

// array checks an array and lists it.
func (p *matmulCall) array(q *call, name string, array Array, want *kind, n int, out bool, to int, a, b, d *view) error {
	if have := kindOfArray(array); have != want {
		return fmt.Errorf("%w: %s must be a Buffer of %v", safe.ErrInvalidArgument, name, want)
	}
	if array.Len() != n {
		return fmt.Errorf("%w: %s has %d elements, but must have %d", safe.ErrInvalidArgument, name, array.Len(), n)
	}
	address := array.Raw()
	if n > 0 && address == 0 {
		return fmt.Errorf("%w: %s", safe.ErrClosed, name)
	}
	v := view{kind: want, address: address, rows: 1, cols: n, stride: n}
	if err := apart(d, "d", &v, name); err != nil {
		return err
	}
	for i, m := range [...]*view{a, b} {
		if err := apart(&v, name, m, "ab"[i:i+1]); out && err != nil {
			return err
		}
	}
	p.addresses[to] = address
	q.use(array.Arg())
	return nil
}

// epilogue returns what cuBLAS calls the combination. cuBLAS's A is b here, as the transposes
// are multiplied.
func (o *MatmulOptions) epilogue() (cublaslt.CublasLtEpilogue_t, error) {
	e := cublaslt.CUBLASLT_EPILOGUE_DEFAULT
	bias, aux := o.Bias != nil, o.Aux != nil
	grad, sums := o.BiasGrad != nil, o.SumA != nil || o.SumB != nil
	switch {
	case o.Epilogue < None || o.Epilogue > DGELU:
		return e, fmt.Errorf("%w: %d is no constant of Epilogue", safe.ErrInvalidArgument, int(o.Epilogue))
	case aux && o.Epilogue == None, grad && o.Epilogue < DReLU, bias && o.Epilogue >= DReLU,
		sums && (o.Epilogue != None || bias), o.SumA != nil && o.SumB != nil:
		return e, fmt.Errorf("%w: these arrays do not go with the epilogue %v, or with each other", safe.ErrInvalidArgument, o.Epilogue)
	case !aux && o.Epilogue >= DReLU:
		return e, fmt.Errorf("%w: %v needs Aux", safe.ErrInvalidArgument, o.Epilogue)
	}
	pick := func(with bool, one, other cublaslt.CublasLtEpilogue_t) cublaslt.CublasLtEpilogue_t {
		if with {
			return one
		}
		return other
	}
	switch o.Epilogue {
	case ReLU:
		e = pick(aux, cublaslt.CUBLASLT_EPILOGUE_RELU_AUX, cublaslt.CUBLASLT_EPILOGUE_RELU)
	case GELU:
		e = pick(aux, cublaslt.CUBLASLT_EPILOGUE_GELU_AUX, cublaslt.CUBLASLT_EPILOGUE_GELU)
	case DReLU:
		return pick(grad, cublaslt.CUBLASLT_EPILOGUE_DRELU_BGRAD, cublaslt.CUBLASLT_EPILOGUE_DRELU), nil
	case DGELU:
		return pick(grad, cublaslt.CUBLASLT_EPILOGUE_DGELU_BGRAD, cublaslt.CUBLASLT_EPILOGUE_DGELU), nil
	case None:
		switch {
		case o.SumA != nil:
			return cublaslt.CUBLASLT_EPILOGUE_BGRADB, nil
		case o.SumB != nil:
			return cublaslt.CUBLASLT_EPILOGUE_BGRADA, nil
		case bias:
			return cublaslt.CUBLASLT_EPILOGUE_BIAS, nil
		}
		return e, nil
	}
	if bias {
		e |= cublaslt.CUBLASLT_EPILOGUE_BIAS // the values are bits
	}
	return e, nil
}
