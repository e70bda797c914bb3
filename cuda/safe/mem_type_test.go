//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Types that must not be in memory which a device can write. Runs on any driver.

package safe_test

import (
	"go/ast"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memoryOf has the calls of all generic functions that make memory of values of type T.
func memoryOf[T any](t *testing.T) map[string]func() error {
	bytes := buffer[byte](t, open(t, 0), 64)
	extent := safe.Extent{Width: 1}
	return map[string]func() error{
		"AddAlloc":           func() error { _, _, err := safe.AddAlloc[T](nil, 1); return err },
		"AddAllocWith":       func() error { _, _, err := safe.AddAllocWith[T](nil, 1, safe.AllocOptions{}); return err },
		"BorrowBuffer":       func() error { _, err := safe.BorrowBuffer[T](nil, 256, 1, nil); return err },
		"BufferFromRaw":      func() error { _, err := safe.BufferFromRaw[T](nil, 256, 1); return err },
		"Cast":               func() error { _, err := safe.Cast[T](bytes); return err },
		"Global":             func() error { _, err := safe.Global[T](nil, "table"); return err },
		"ImportBuffer":       func() error { _, err := safe.ImportBuffer[T](nil, driver.CUmemPoolPtrExportData{}, 1); return err },
		"NewArray":           func() error { _, err := safe.NewArray[T](nil, extent, safe.ArrayOptions{}); return err },
		"NewBuffer":          func() error { _, err := safe.NewBuffer[T](nil, 1); return err },
		"NewBufferAsync":     func() error { _, err := safe.NewBufferAsync[T](nil, 1); return err },
		"NewBufferFrom":      func() error { _, err := safe.NewBufferFrom[T](nil, nil, 1); return err },
		"NewBufferIn":        func() error { _, err := safe.NewBufferIn[T](nil, 1); return err },
		"NewBufferWith":      func() error { _, err := safe.NewBufferWith[T](nil, 1, safe.BufferOptions{}); return err },
		"NewExternalBuffer":  func() error { _, err := safe.NewExternalBuffer[T](nil, 0, 1); return err },
		"NewManagedBuffer":   func() error { _, err := safe.NewManagedBuffer[T](nil, 1); return err },
		"NewMappedBuffer":    func() error { _, err := safe.NewMappedBuffer[T](nil, 0, 1); return err },
		"NewPinned":          func() error { _, err := safe.NewPinned[T](nil, 1); return err },
		"NewPinnedWith":      func() error { _, err := safe.NewPinnedWith[T](nil, 1, safe.PinnedOptions{}); return err },
		"NewPitched":         func() error { _, err := safe.NewPitched[T](nil, extent); return err },
		"NewZeroed":          func() error { _, err := safe.NewZeroed[T](nil, 1); return err },
		"OpenIPCBuffer":      func() error { _, err := safe.OpenIPCBuffer[T](nil, driver.CUipcMemHandle{}, 1); return err },
		"PitchedOf":          func() error { _, err := safe.PitchedOf(make([]T, 1), extent, 0); return err },
		"RegisterPinned":     func() error { _, err := safe.RegisterPinned(nil, make([]T, 1)); return err },
		"RegisterPinnedWith": func() error { _, err := safe.RegisterPinnedWith(nil, make([]T, 1), safe.PinnedOptions{}); return err },
		"Upload":             func() error { _, err := safe.Upload(nil, make([]T, 1)); return err },
	}
}

// ofMadeMemory are the generic functions that take memory of values of type T, and those whose
// values never get into memory that a device can write.
var ofMadeMemory = []string{
	"BatchCopy", "BatchFill", "CopyFromSlice", "CopyNode", "CopyToSlice", "FillNode", "FreeNode",
	"NewCopyOp", "NewLinearTexture", "NewPitchedTexture", "NewPrefetchOp", "NewSurface", "NewTexture",
	"PointerAddress", "PointerArg", "SetBatchCopy", "SetBatchFill",
	"Enqueue", "Ref", "Val",
	"collective.AllGather", "collective.AllToAll", "collective.Broadcast", "collective.Gather",
	"collective.Recv", "collective.Register", "collective.Scatter", "collective.Send",
}

// numbers are the constraints that only types of numbers satisfy.
var numbers = []string{
	"MemOpValue", "blas.Element", "blas.Number", "blas.Real", "blas.Scalar", "collective.Element",
}

type (
	flag   bool
	inner  struct{ Flags [2][3]bool }
	nested struct {
		N     int32
		Inner [2]inner
	}
	padded struct {
		N int32
		_ bool
	}
	list struct {
		Value int
		Next  *list
	}
	named struct{ Of struct{ Names []string } }
	both  struct {
		OK   bool
		Name string
	}
)

func TestMemoryTypes(t *testing.T) {
	const bools, pointers = "which a device can set to values other than true and false: use ", "which a device cannot follow: use an index or a device address"
	refusedType[bool](t, "type bool contains bools, "+bools+"uint8")
	refusedType[flag](t, "type safe_test.flag contains bools, "+bools+"uint8")
	refusedType[[4]bool](t, "type [4]bool contains bools, "+bools+"uint8 for its [0]")
	refusedType[nested](t, "type safe_test.nested contains bools, "+bools+"uint8 for its Inner[0].Flags[0][0]")
	refusedType[padded](t, "type safe_test.padded contains bools, "+bools+"uint8 for its _")
	refusedType[both](t, "type safe_test.both contains Go pointers, "+pointers+" for its Name")
	refusedType[list](t, "type safe_test.list contains Go pointers, "+pointers+" for its Next")
	refusedType[named](t, "type safe_test.named contains Go pointers, "+pointers+" for its Of.Names")
	refusedType[*int](t, "type *int contains Go pointers, "+pointers)
	refusedType[string](t, "type string contains Go pointers, "+pointers)
	refusedType[[]byte](t, "type []uint8 contains Go pointers, "+pointers)
	refusedType[map[int]int](t, "type map[int]int contains Go pointers, "+pointers)
	refusedType[chan int](t, "type chan int contains Go pointers, "+pointers)
	refusedType[func()](t, "type func() contains Go pointers, "+pointers)
	refusedType[any](t, "type interface {} contains Go pointers, "+pointers)
	refusedType[error](t, "type error contains Go pointers, "+pointers)
	refusedType[unsafe.Pointer](t, "type unsafe.Pointer contains Go pointers, "+pointers)
	refusedType[struct{}](t, "type struct {} has size 0")
	refusedType[[0]int](t, "type [0]int has size 0")
	refusedType[[0]bool](t, "type [0]bool has size 0")
}

func refusedType[T any](t *testing.T, want string) {
	t.Run(reflect.TypeFor[T]().String(), func(t *testing.T) {
		for name, call := range memoryOf[T](t) {
			err := call()
			require.ErrorIs(t, err, safe.ErrInvalidArgument, name)
			assert.Equal(t, "cuda: "+strings.TrimSuffix(name, "With")+": invalid argument: "+want, err.Error())
		}
	})
}

func TestMemoryTypesAllowed(t *testing.T) {
	x := open(t, 0)
	type vertex struct {
		At    [3]float32
		Color uint8
		_     [3]uint8
		IDs   [2]struct{ A, B uintptr }
		Empty [0]bool
		Z     complex128
	}
	buffer[vertex](t, x, 3)
	buffer[[1 << 16]byte](t, x, 1)
	buffer[uintptr](t, x, 1)
	buffer[dtype.Float16](t, x, 1)
}

// TestArgumentTypes: values that only go to the device may have bools.
func TestArgumentTypes(t *testing.T) {
	for _, good := range []safe.Arg{safe.Val(true), safe.Val(flag(true)), safe.Val(padded{}), safe.Ref(new(bool)), safe.Ref(&nested{})} {
		assert.Empty(t, safe.Unfit(good))
	}
	const pointers = "type safe_test.both contains Go pointers, which a device cannot follow: use an index or a device address for its Name"
	assert.Equal(t, pointers, safe.Unfit(safe.Val(both{})))
	assert.Equal(t, pointers, safe.Unfit(safe.Ref(&both{})))
	assert.Equal(t, "the Ref is of a nil *int32", safe.Unfit(safe.Ref[int32](nil)))
}

// TestMemoryTypesEverywhere: the tests know every exported generic function.
func TestMemoryTypesEverywhere(t *testing.T) {
	known := slices.Concat(slices.Collect(maps.Keys(memoryOf[byte](t))), ofMadeMemory)
	var found []string
	for _, folder := range []string{".", "blas", "collective", "compile"} {
		for _, f := range drivertest.ExportedFunctions(t, folder) {
			name := inFolder(folder, f.Name.Name)
			if !takesAnyType(f, folder) {
				assert.NotContains(t, known, name, "its types are numbers")
				continue
			}
			found = append(found, name)
			assert.Contains(t, known, name, "say in memoryOf or in ofMadeMemory what it does with values of type T")
		}
	}
	assert.Subset(t, found, known, "functions that do not exist")
}

// takesAnyType tells whether a type parameter of f may be a type other than a number.
func takesAnyType(f *ast.FuncDecl, folder string) bool {
	if f.Type.TypeParams == nil {
		return false
	}
	for _, p := range f.Type.TypeParams.List {
		constraint, ok := p.Type.(*ast.Ident)
		if !ok || !slices.Contains(numbers, inFolder(folder, constraint.Name)) {
			return true
		}
	}
	return false
}

func inFolder(folder, name string) string {
	if folder == "." {
		return name
	}
	return folder + "." + name
}
