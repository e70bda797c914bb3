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

// option is an array of the options, as the operation needs it.
type option struct {
	name  string
	array Array
	kind  *kind
	n     int
	out   bool
	to    int // which address of the call
}

// arrays checks the arrays of the options and lists them.
func (p *matmulCall) arrays(q *call, o *MatmulOptions, a, b, d *view) error {
	epilogue, err := o.epilogue()
	if err != nil {
		return err
	}
	if epilogue != cublaslt.CUBLASLT_EPILOGUE_DEFAULT && (d.byColumn || d.kind.complex() || a.kind == kindInt8) {
		return fmt.Errorf("%w: an epilogue or an array needs real floating-point numbers, and a result that is stored by row", safe.ErrInvalidArgument)
	}
	if !a.kind.float8() && (o.ScaleA != nil || o.ScaleB != nil || o.FastAccumulation) || !d.kind.float8() && (o.ScaleD != nil || o.AmaxD != nil) {
		return fmt.Errorf("%w: scales, AmaxD and FastAccumulation are for matrices of 8-bit floating-point numbers", safe.ErrInvalidArgument)
	}
	vector := d.kind
	if a.kind.float8() && d.kind != kindFloat16 {
		vector = kindBFloat16
	}
	k := &p.key
	k.epilogue, k.bias, k.fast = epilogue, vector.data, o.FastAccumulation
	if o.Aux != nil {
		k.auxStride = int64(auxStride(o.Epilogue, d.cols))
	}
	scaleX, scaleY := o.ScaleB, o.ScaleA
	if d.byColumn {
		scaleX, scaleY = scaleY, scaleX
	}
	auxLen, writesAux := AuxLen(o.Epilogue, d.rows, d.cols), o.Epilogue == ReLU || o.Epilogue == GELU
	options := [...]option{
		{"Bias", o.Bias, vector, d.cols, false, addressBias},
		{"BiasGrad", o.BiasGrad, vector, d.cols, true, addressBias},
		{"SumA", o.SumA, vector, d.rows, true, addressBias},
		{"SumB", o.SumB, vector, d.cols, true, addressBias},
		{"Aux", o.Aux, o.auxKind(d), auxLen, writesAux, addressAux},
		{"a scale", array(scaleX), kindFloat32, 1, false, addressScaleX},
		{"a scale", array(scaleY), kindFloat32, 1, false, addressScaleY},
		{"ScaleD", array(o.ScaleD), kindFloat32, 1, false, addressScaleD},
		{"AmaxD", array(o.AmaxD), kindFloat32, 1, true, addressAmax},
	}
	for i := range options {
		if options[i].array == nil {
			continue
		}
		if err := p.array(q, &options[i], a, b, d); err != nil {
			return err
		}
		for j := range i {
			if one, other := &options[i], &options[j]; other.array != nil && (one.out || other.out) {
				v, w := one.view(), other.view()
				if err := apart(&v, one.name, &w, other.name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (o *option) view() view {
	n := o.array.Len()
	return view{kind: o.kind, address: o.array.Raw(), rows: 1, cols: n, stride: n}
}

// array converts a nil Buffer to a nil Array.
func array(b *safe.Buffer[float32]) Array {
	if b == nil {
		return nil
	}
	return b
}

func (o *MatmulOptions) auxKind(d *view) *kind {
	if o.Epilogue == ReLU || o.Epilogue == DReLU {
		return kindUint8
	}
	return d.kind
}

// array checks an array and lists it.
func (p *matmulCall) array(q *call, o *option, a, b, d *view) error {
	if have := kindOfArray(o.array); have != o.kind {
		return fmt.Errorf("%w: %s must be a Buffer of %v", safe.ErrInvalidArgument, o.name, o.kind)
	}
	if o.array.Len() != o.n {
		return fmt.Errorf("%w: %s has %d elements, but must have %d", safe.ErrInvalidArgument, o.name, o.array.Len(), o.n)
	}
	v := o.view()
	if o.n > 0 && v.address == 0 {
		return fmt.Errorf("%w: %s", safe.ErrClosed, o.name)
	}
	if err := apart(d, "d", &v, o.name); err != nil {
		return err
	}
	for i, m := range [...]*view{a, b} {
		if !o.out {
			break
		}
		if err := apart(&v, o.name, m, "ab"[i:i+1]); err != nil {
			return err
		}
	}
	p.addresses[o.to] = v.address
	q.use(o.array.Arg())
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
