package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMistakes tests what the Go compiler says to launches that are wrong, and that docs/kernels.md shows it.
func TestMistakes(t *testing.T) {
	page, err := os.ReadFile("../../docs/kernels.md")
	require.NoError(t, err)
	for _, c := range []struct{ name, call, want string }{
		{"an element type", "k.Scale.Launch(s, c, ints, f, f, f, f, f, nil, 2, 5)",
			"cannot use ints (variable of type *safe.Buffer[int32]) as safe.Pointer[float32] value in argument to k.Scale.Launch: *safe.Buffer[int32] does not implement safe.Pointer[float32] (wrong type for method pointsTo)"},
		{"an argument too few", "k.Scale.Launch(s, c, f, f, f, f, f, f, nil, 2)",
			"not enough arguments in call to k.Scale.Launch"},
		{"a Go int", "k.Scale.Launch(s, c, f, f, f, f, f, f, nil, 2, n)",
			"cannot use n (variable of type int) as int32 value in argument to k.Scale.Launch"},
		{"two arguments exchanged", "k.Shift.Launch(s, c, f, 8, f, 8, 8, 1, 0)",
			"cannot use 8 (constant of type int) as safe.Pointer[float32] value in argument to k.Shift.Launch: int does not implement safe.Pointer[float32] (missing method Arg)"},
		{"an untyped launch's argument", "k.Scale.Launch(s, c, f.Arg(), f, f, f, f, f, nil, 2, 5)",
			"cannot use f.Arg() (value of struct type safe.Arg) as safe.Pointer[float32] value in argument to k.Scale.Launch: safe.Arg does not implement safe.Pointer[float32] (missing method Arg)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(".", "_mistake") // in this module
			require.NoError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(`package mistake

import (
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/kernels/hard"
)

func launch(k *hard.Shapes, s *safe.Stream, c safe.LaunchConfig, f *safe.Buffer[float32], ints *safe.Buffer[int32], n int) error {
	return `+c.call+`
}
`), 0o644))
			out, err := exec.Command("go", "build", "./"+dir).CombinedOutput()
			assert.Error(t, err)
			said := regexp.MustCompile(`main\.go:\d+:\d+: (.*)`).FindStringSubmatch(string(out))
			require.NotNil(t, said, "%s", out)
			assert.Equal(t, c.want, said[1])
			assert.True(t, strings.Contains(string(page), "`"+c.want+"`"), "docs/kernels.md does not show it")
		})
	}
}
