package safe

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"unsafe"
)

// A typeFault says what to do about the first Go pointer and the first bool in a type, "" if it
// has none. Values with pointers must not get to a device. Values with bools must not come from
// one: the compiler relies on a bool being 0 or 1, but not on the value of any number.
type typeFault struct{ pointer, boolean string }

var (
	noFault    typeFault
	typeFaults sync.Map // reflect.Type -> *typeFault, except of numbers
)

// faultOf returns the fault of a type. It allocates only for the first value of a type.
func faultOf(t reflect.Type) *typeFault {
	if isNumber(t.Kind()) {
		return &noFault
	}
	if known, ok := typeFaults.Load(t); ok {
		return known.(*typeFault)
	}
	f := new(typeFault)
	f.look(t, "")
	typeFaults.Store(t, f)
	return f
}

func isNumber(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Complex128 }

// look looks through a type, which is at path in the type of f.
func (f *typeFault) look(t reflect.Type, path string) {
	where := ""
	if path != "" {
		where = " for its " + strings.TrimPrefix(path, ".")
	}
	switch k := t.Kind(); {
	case isNumber(k):
	case k == reflect.Array:
		if t.Len() > 0 {
			f.look(t.Elem(), path+"[0]")
		}
	case k == reflect.Struct:
		for i := range t.NumField() {
			f.look(t.Field(i).Type, path+"."+t.Field(i).Name)
		}
	case k == reflect.Bool:
		f.boolean = cmp.Or(f.boolean, "use uint8"+where)
	default:
		f.pointer = cmp.Or(f.pointer, "use an index or a device address"+where)
	}
}

// toDevice says why values of a type must not get to a device. It returns "" if they may.
func toDevice(t reflect.Type) string {
	if f := faultOf(t); f.pointer != "" {
		return fmt.Sprintf("type %v contains Go pointers, which a device cannot follow: %s", t, f.pointer)
	}
	return ""
}

// inMemory says why values of a type must not be in memory that a device can write. It returns
// "" if they may.
func inMemory(t reflect.Type) string {
	if f := faultOf(t); f.pointer == "" && f.boolean != "" {
		return fmt.Sprintf("type %v contains bools, which a device can set to values other than true and false: %s", t, f.boolean)
	}
	return toDevice(t)
}

// sizeOf returns the size of n values in bytes. It returns an error if values of type T must not
// be in memory of a device, or if n does not suit a Buffer, which may be empty. Every function
// that makes memory of values of a type calls it.
func sizeOf[T any](n int) (uint64, error) {
	var zero T
	t := reflect.TypeFor[T]()
	size := uint64(unsafe.Sizeof(zero))
	bad := inMemory(t)
	switch {
	case bad != "":
		return 0, fmt.Errorf("%w: %s", ErrInvalidArgument, bad)
	case size == 0:
		return 0, fmt.Errorf("%w: type %v has size 0", ErrInvalidArgument, t)
	case n < 0:
		return 0, fmt.Errorf("%w: %d values of %v, but the number must not be negative", ErrRange, n, t)
	case uint64(n) > math.MaxInt64/size:
		return 0, fmt.Errorf("%w: %d values of %v are more than an address space has", ErrRange, n, t)
	}
	return uint64(n) * size, nil
}

// sizeOfSome returns the size in bytes of n values of T, of which there must be at least one.
func sizeOfSome[T any](n int) (uint64, error) {
	size, err := sizeOf[T](n)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: 0 values of %v, but there must be at least 1", ErrRange, reflect.TypeFor[T]())
	}
	return size, err
}
