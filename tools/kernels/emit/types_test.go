package emit

import (
	"testing"

	"github.com/cudabind/cudabind/tools/kernels/model"
	"github.com/dave/jennifer/jen"
	"github.com/stretchr/testify/assert"
)

// TestProve: the layout of a struct is proved in a form to which staticcheck has no objection.
func TestProve(t *testing.T) {
	f, of := jen.NewFile("p"), &model.Go{Name: "int32", Size: 4}
	prove(f, &model.Type{Go: "Pair", Size: 8, Slots: []model.Slot{{Name: "First", Type: of}, {Name: "Second", Offset: 4, Type: of}}})
	assert.Equal(t, `package p

import "unsafe"

const (
	_ = -(unsafe.Sizeof(Pair{}) ^ 8)
	_ = -(unsafe.Offsetof(Pair{}.Second) ^ 4)
)
`, f.GoString())
}
