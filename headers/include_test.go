package headers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPinned(t *testing.T) {
	files, err := pinned(sample, runtimePart.roots)
	require.NoError(t, err)
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
		assert.Equal(t, sum([]byte(sample[f.Path])), f.SHA256, f.Path)
	}
	assert.Equal(t, samplePaths, paths)
}

func TestPinnedFollows(t *testing.T) {
	tests := []struct {
		name, line string
		follows    bool
	}{
		{"quoted", `#include "extra.h"`, true},
		{"angle", `#include <extra.h>`, true},
		{"spaces", "\t# \tinclude\t<extra.h> /* why */", true},
		{"no space", `#include"extra.h"`, true},
		{"carriage return", "#include <extra.h>\r", true},
		{"dotted", `#include "./sub/../extra.h"`, true},
		{"missing", `#include "absent.h"`, false},
		{"line comment", `// #include "extra.h"`, false},
		{"outside", `#include "../extra.h"`, false},
		{"macro", `#include EXTRA`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files, err := pinned(sample.with("extra.h", "").with("cudaTypedefs.h", "int a;\n"+tt.line+"\nint b;\n"), runtimePart.roots)
			require.NoError(t, err)
			assert.Equal(t, tt.follows, len(files) == len(samplePaths)+1)
		})
	}
}

func TestPinnedLacksARoot(t *testing.T) {
	_, err := pinned(sample.without("cudaTypedefs.h"), runtimePart.roots)
	assert.Error(t, err)
}

func TestCheckVersion(t *testing.T) {
	tests := []struct{ name, text, version, want string }{
		{"same", "#define CUDA_VERSION 12090\n", "12.9", ""},
		{"indented", "#if 1\n  #  define CUDA_VERSION\t11080 /* 11.8 */\n", "11.8", ""},
		{"two digits", "#define CUDA_VERSION 13100\n", "13.10", ""},
		{"another", "#define CUDA_VERSION 12080\n", "12.9", "cuda.h is of CUDA 12.8, not 12.9"},
		{"none", "#define OTHER 1\n", "12.9", "cuda.h does not define CUDA_VERSION"},
		{"huge", "#define CUDA_VERSION 99999999999999999999\n", "12.9", "cuda.h has CUDA_VERSION 99999999999999999999"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := checkVersion(tree{mainHeader: tt.text}, tt.version)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tt.want)
		})
	}
}
