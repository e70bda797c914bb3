package doc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
		{"both", "/**\n * \\return ::CUDA_SUCCESS\n * \\sa cuTake\n * \\param x - cuNot\n */", []string{"CUDA_SUCCESS"}, []string{"cuTake"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, refs{tt.returns, tt.see}, references(tt.comment))
		})
	}
}

// What is found stands in the comment, and nothing twice.
func FuzzReferences(f *testing.F) {
	f.Add("/** \\return ::CUDA_SUCCESS,\n * cuX */")
	f.Add("\\sa ::cu\n@see CU_A\x00\u00a0cuB")
	f.Fuzz(func(t *testing.T, comment string) {
		r := references(comment)
		for _, list := range [][]string{r.returns, r.see} {
			seen := map[string]bool{}
			for _, name := range list {
				assert.Contains(t, comment, name)
				assert.True(t, strings.HasPrefix(name, "cu") || strings.HasPrefix(name, "CU"), name)
				assert.False(t, seen[name], name)
				seen[name] = true
			}
		}
	})
}
