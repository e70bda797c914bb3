package doc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

func TestReferences(t *testing.T) {
	for _, tt := range []struct {
		name, comment string
		returns, see  []string
	}{
		{"nothing", "", nil, nil},
		{"text alone", "/** Names cuTake and ::CUDA_SUCCESS on the way. */", nil, nil},
		{"one line", `/** \return ::CUDA_SUCCESS, ::CUDA_ERROR_INVALID_VALUE */`, []string{"CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"}, nil},
		{"several lines", "/**\n * \\return\n * ::CUDA_SUCCESS,\n * ::CUDA_ERROR_X\n * \\notefnerr\n * cuOther\n */", []string{"CUDA_SUCCESS", "CUDA_ERROR_X"}, nil},
		{"see also", "/**\n * \\sa ::cuTake, cuGive,\n *  ::cudaGive\n */", nil, []string{"cuTake", "cuGive", "cudaGive"}},
		{"other spellings", "/**\n * @returns cudaSuccess\n * @see cudaTake */", []string{"cudaSuccess"}, []string{"cudaTake"}},
		{"each once", "/** \\sa cuTake, ::cuTake\n * \\sa cuTake */", nil, []string{"cuTake"}},
		{"continued by a reference", "/**\n * \\return\n * - A_DONE if\n * \\a size is 0\n * - A_LOST\n * \\sa cuTake,\n * \\ref ::cuGive(cuBox_t box), cuPut */", []string{"A_DONE", "A_LOST"}, []string{"cuTake", "cuGive", "cuPut"}},
		{"a code each", "/** \\retval A_DONE if so\n * \\retval A_LOST otherwise\n * \\param x cuNot */", []string{"A_DONE", "A_LOST"}, nil},
		{"a list without its mark", "/** Text names A_NOT.\n * return\n *   - A_DONE */", []string{"A_DONE"}, nil},
		{"links", "/** \\return\n * - \\link #aResult A_DONE \\endlink */", []string{"aResult", "A_DONE"}, nil},
		{"management library", "/** @return\n * - \\ref NVML_SUCCESS if so\n * @see nvmlTake */", []string{"NVML_SUCCESS"}, []string{"nvmlTake"}},
		{"both", "/**\n * \\return ::CUDA_SUCCESS\n * \\sa cuTake\n * \\param x - cuNot\n */", []string{"CUDA_SUCCESS"}, []string{"cuTake"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, refs{tt.returns, tt.see}, references(tt.comment))
		})
	}
}

func TestAnnounced(t *testing.T) {
	for _, tt := range []struct {
		name, comment, successor string
		ok                       bool
	}{
		{"nothing", "/** \\brief Takes */", "", false},
		{"deprecated already", "/** \\deprecated Use ::cuGive */", "", false},
		{"warning", "/**\n * \\brief Takes\n *\n * \\warning Beware of ::cuBox: this call will be deprecated in a future version. Rather\n * take ::cuGive or ::cuPut.\n */", "cuGive", true},
		{"note", "/** \\note It is slated for eventual deprecation: consider ::cuGive. */", "cuGive", true},
		{"no successor", "/**\n * \\note It is slated for eventual deprecation.\n *\n * See ::cuGive.\n */", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			successor, ok := announced(tt.comment)
			assert.Equal(t, tt.successor, successor)
			assert.Equal(t, tt.ok, ok)
		})
	}
}

// TestAnnouncements: what the headers announce is told of the functions and of
// their variants, with a successor that exists.
func TestAnnouncements(t *testing.T) {
	for _, tt := range []struct {
		api, version string
		want         int
	}{{"driver", "13.5", 45}, {"runtime", "13.5", 41}, {"driver", "12.9", 1}} {
		t.Run(tt.api+" "+tt.version, func(t *testing.T) {
			a := complete(t, tt.api, tt.version)
			require.NoError(t, Fill(a, nil))
			told := map[string]bool{}
			for _, f := range a.Funcs {
				if !f.Deprecated && strings.Contains(strings.Join(f.Doc, " "), "Deprecated: NVIDIA announces") {
					assert.Contains(t, strings.Join(f.Doc, " "), ". Use [Cu", f.Symbol)
					base, _, _ := model.Base(f.Symbol)
					told[base] = true
				}
			}
			assert.Len(t, told, tt.want)
		})
	}
}

// Each reference is a name in the comment, and no list has one twice.
func FuzzReferences(f *testing.F) {
	f.Add("/** \\return ::CUDA_SUCCESS,\n * cuX */")
	f.Add("\\sa ::cu\n@see CU_A\x00\u00a0cuB")
	f.Fuzz(func(t *testing.T, comment string) {
		r := references(comment)
		for _, list := range [][]string{r.returns, r.see} {
			seen := map[string]bool{}
			for _, name := range list {
				assert.Contains(t, comment, name)
				assert.False(t, seen[name], name)
				seen[name] = true
			}
		}
	})
}
