package doc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// A package speaks of the runtime of its own major version.
func TestPackageNamesItsRuntime(t *testing.T) {
	for version, want := range map[string]string{"12.6": "cudart12.CudaStream_t(stream)", "13.5": "cudart13.CudaStream_t(stream)"} {
		text := strings.Join(Package(&model.API{Row: model.RowOf("driver"), Header: "cuda.h", Version: version, Funcs: []*model.Func{{Result: &model.Type{Kind: model.Void}}}}, "driver"), " ")
		assert.Contains(t, text, want)
		assert.Equal(t, 1, strings.Count(text, "cudart"), version)
	}
}

// TestPrograms: the comment of a library's package shows its program, indented as code, and each
// program is of a library.
func TestPrograms(t *testing.T) {
	require.Greater(t, len(programs()), 5)
	for api, program := range programs() {
		row := model.RowOf(api)
		require.NotNilf(t, row, "programs/%s.go is of no library", api)
		a := &model.API{Row: row, Header: row.Headers[0], Version: "13.5", Funcs: []*model.Func{{Result: &model.Type{Kind: model.Void}}}}
		text := strings.Join(Package(a, row.Package), "\n")
		assert.Contains(t, text, "\n# Example\n\n"+program+"\n\n", api)
		assert.Contains(t, program, row.Package+"."+model.GoName(row.Prefix), api)
		assert.NotContains(t, program, "import", api)
	}
}

// TestOpenings: each published package says how to begin.
func TestOpenings(t *testing.T) {
	for _, p := range committed {
		o, ok := openings[p.API]
		assert.True(t, ok, p.API)
		assert.NotEmpty(t, o.purpose+o.start, p.API)
		assert.Equal(t, o.heading == "", len(o.rules) == 0, p.API)
	}
}
