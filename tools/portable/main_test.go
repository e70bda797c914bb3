package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	linux, arm64, windows := system{"linux", "amd64", ""}, system{"linux", "arm64", ""}, system{"windows", "amd64", ""}
	tagged := system{"linux", "amd64", "other"}
	for _, tt := range []struct {
		name string
		on   system
		want string // "" if it compiles
	}{
		{"a file of another system", linux, ""},
		{"a file of this system", windows, "undefined: noSuchName"},
		{"a function that only assembly of another architecture has", arm64, "f_arm64.go:3:1: assembled has no body"},
		{"a test inside the package", arm64, "undefined: alsoNot"},
		{"a test beside the package, with a tag", tagged, "undefined: p.Hidden"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"go.mod":           "module example.com/p\n\ngo 1.26\n",
				"p.go":             "package p\n\nimport \"os\"\n\nvar Name = os.Args[0]\n",
				"p_windows.go":     "package p\n\nfunc f() { noSuchName() }\n",
				"f_amd64.go":       "package p\n\nfunc assembled()\n",
				"f_amd64.s":        "",
				"f_arm64.go":       "package p\n\nfunc assembled()\n",
				"in_test.go":       "package p\n\nvar hidden = Name\n",
				"in_arm64_test.go": "package p\n\nvar _ = alsoNot\n",
				"out_test.go":      "package p_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/p\"\n)\n\nfunc Test(*testing.T) { _ = p.Name }\n",
				"tag_test.go":      "//go:build other\n\npackage p_test\n\nimport \"example.com/p\"\n\nvar _ = p.Hidden\n",
			} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
			}
			err := check(tt.on, dir)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
		})
	}
	t.Run("no such package", func(t *testing.T) {
		assert.ErrorContains(t, check(linux, t.TempDir()), "go list")
	})
}
