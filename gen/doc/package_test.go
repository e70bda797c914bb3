package doc

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/headers"
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

// TestUnbound: the package comment names what the header defines itself.
func TestUnbound(t *testing.T) {
	const heading = "# Not bound"
	keep := &model.Func{Symbol: "cuMake", Go: "CuMake", Result: &model.Type{Kind: model.Void}}
	for _, tt := range []struct {
		name    string
		inlines []model.Inline
		dropped []string
		left    []model.Unbound
		want    string // "" for no section
	}{
		{name: "nothing"},
		{"a function that calls one of the library's", []model.Inline{{C: "cuMakeTwo", Calls: []string{"cuMake"}}}, nil, nil,
			"The header defines functions that the library does not export: cuMakeTwo calls [CuMake]."},
		{"functions that call several and none", []model.Inline{{C: "cuMakeTwo", Calls: []string{"cuMake", "cuMakeEx"}}, {C: "cuMakeNone"}}, nil, nil,
			"The header defines functions that the library does not export: cuMakeTwo calls [CuMake] and CuMakeEx, cuMakeNone calls none that is bound."},
		{"declarations", nil, nil, []model.Unbound{{C: "cuA", Why: "it takes a list"}, {C: "CUb", Why: "it has no size"}, {C: "cuC", Why: "it takes a list"}},
			"What Go cannot have is left out: cuA, cuC: it takes a list. CUb: it has no size."},
		{"macros", nil, []string{"CU_TWO", "CU_ONE"}, nil, "These macros are no constants: CU_ONE, CU_TWO."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &model.API{Row: model.RowOf("curand"), Header: "curand.h", Version: "13.5", Funcs: []*model.Func{keep}, Inlines: tt.inlines, Dropped: tt.dropped, Unbound: tt.left}
			text := strings.Join(Package(a, "curand"), " ")
			if tt.want == "" {
				assert.NotContains(t, text, heading)
				return
			}
			assert.Contains(t, text, heading+"  "+tt.want)
		})
	}
}

// A package of a header that lacks what the texts speak of names it without a link.
func TestPackageLinksToWhatExists(t *testing.T) {
	a := complete(t, "cufft", "12.9")
	require.NoError(t, Fill(a, nil))
	text := strings.Join(Package(a, "cufft"), " ")
	assert.Contains(t, text, "cufftXtSetJITCallback calls none that is bound")
	assert.NotContains(t, text, "[CufftXtSetJITCallback]")
	assert.Contains(t, text, "[CufftCreate]")
}

var (
	macroWithParameters = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*define[ \t]+([A-Za-z]\w*)\(`)
	inlineFunction      = regexp.MustCompile(`\binline\b[^;{}()]*?\b([A-Za-z]\w*)\s*\(`)
	cComment            = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
)

// TestNothingVanishes reads the headers as text, with what they show to C++ alone: macros with
// parameters and inline functions are bound, or the package comment names them.
func TestNothingVanishes(t *testing.T) {
	for _, p := range committed {
		t.Run(p.Name, func(t *testing.T) {
			a := complete(t, p.API, p.Version)
			dir, err := headers.Find(p.Version)
			require.NoError(t, err)
			doc, err := os.ReadFile(filepath.Join("..", "..", "cuda", "generated", p.Name, "zdoc.go"))
			require.NoError(t, err)
			bound := goNames(a)
			prefix := regexp.MustCompile(`(?i)^` + a.Row.Prefix)
			seen := map[string]bool{}
			for _, name := range append(a.HeaderNames(), a.Row.Own...) {
				text, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				code := cComment.ReplaceAllString(string(text), "")
				for _, m := range append(macroWithParameters.FindAllStringSubmatch(code, -1), inlineFunction.FindAllStringSubmatch(code, -1)...) {
					if prefix.MatchString(m[1]) && bound[m[1]] == "" && (a.Row.Only == nil || a.Row.Only.MatchString(m[1])) {
						seen[m[1]] = true
						assert.Truef(t, regexp.MustCompile(`\b`+m[1]+`\b`).Match(doc), "%s of %s is neither bound nor named", m[1], name)
					}
				}
			}
			t.Logf("%d macros and inline functions that are not bound", len(seen))
		})
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
