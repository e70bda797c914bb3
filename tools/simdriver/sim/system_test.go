//go:build linux

package sim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTarget(t *testing.T) {
	for _, c := range []struct {
		name, says string
		want       *system
	}{
		{"gcc", "Target: x86_64-linux-gnu\ngcc version 12.2.0", linux},
		{"another architecture", "Target: aarch64-linux-gnu", linux},
		{"MinGW", "Using built-in specs.\nTarget: x86_64-w64-mingw32\nThread model: win32", windows},
		{"clang", "clang version 19\nTarget: x86_64-w64-windows-gnu", windows},
		{"a folder named so", "Target: x86_64-linux-gnu\nInstalledDir: /opt/mingw/bin", linux},
		{"nothing", "", linux},
	} {
		t.Run(c.name, func(t *testing.T) {
			cc := filepath.Join(t.TempDir(), "cc.sh")
			require.NoError(t, os.WriteFile(cc, []byte("#!/bin/sh\ncat <<'END' >&2\n"+c.says+"\nEND\n"), 0o777))
			t.Setenv("CC", cc)
			assert.Same(t, c.want, target())
		})
	}
	t.Run("no compiler", func(t *testing.T) {
		t.Setenv("CC", "no-such-compiler")
		assert.Same(t, linux, target())
	})
}

func TestExports(t *testing.T) {
	names := []string{"cuInit", "simFail"}
	assert.Equal(t, "{ global:\ncuInit;\nsimFail;\nlocal: *; };\n", linux.text(names))
	assert.Equal(t, "EXPORTS\ncuInit\nsimFail\n", windows.text(names))
}
