package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
)

// way is a way of calling, and how to run programs that call so.
type way struct {
	name    string
	cc      string
	wrapper string // below the repository's root, if it begins with tools/
	env     []string
	layout  bool // types are laid out anew, by another C compiler
}

var ways = []way{
	{"linux_amd64 without cgo", "", "", []string{"CGO_ENABLED=0", "GOFLAGS=-tags=cudabind_nocgo"}, false},
	{"windows_amd64", "x86_64-w64-mingw32-gcc -D_IO_FILE=_iobuf", "tools/wine/wine.sh", []string{"CGO_ENABLED=0", "GOOS=windows"}, true},
	{"linux_arm64", "aarch64-linux-gnu-gcc", "qemu-aarch64 -L /usr/aarch64-linux-gnu", []string{"GOARCH=arm64"}, true},
	{"linux_arm64 without cgo", "aarch64-linux-gnu-gcc", "qemu-aarch64 -L /usr/aarch64-linux-gnu", []string{"GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=-tags=cudabind_nocgo"}, false},
}

// TestProofWays runs the proofs of the newest version again, by the other ways of calling:
// every function is called there with a pattern in each argument.
func TestProofWays(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-nocgo, test-windows and test-arm64 run it")
	}
	releases := headers.Releases()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			w.prepare(t)
			module := proofModule(t)
			withPurego(t, module)
			for _, api := range callable() {
				if w.name == "windows_amd64" && model.RowOf(api).Library.Windows.Names == nil {
					continue // the library is not there for Windows, and CUPTI's header takes Microsoft's compiler
				}
				t.Run(api, func(t *testing.T) {
					p := newProof(t, module, api, releases[len(releases)-1].Version)
					if w.name == "windows_amd64" {
						p.elsewhere = otherOnWindows(t, p.api)
					}
					if w.layout {
						t.Run("layout", p.layout)
					}
					t.Run("calls", func(t *testing.T) {
						expected := p.writeTests(t)
						out := p.goTest(t, ".", w.env...)
						for _, line := range expected {
							assert.Contains(t, out, line)
						}
					})
				})
			}
		})
	}
}

// prepare sets the compiler and the wrapper of a way, or skips where they are missing.
func (w way) prepare(t *testing.T) {
	wrapper := w.wrapper
	if script := filepath.Join(repository(t), wrapper); wrapper != "" && filepath.Dir(wrapper) == "tools/wine" {
		wrapper = script
		if _, err := os.Stat("/usr/lib/wine/wine64"); err != nil {
			unproven(t, "there is no wine64: "+err.Error())
		}
	}
	t.Setenv("CC", w.cc)
	t.Setenv(command.Wrapper, wrapper)
	for _, cmd := range []error{command.CC().Err, command.Built("true").Err} {
		if cmd != nil {
			unproven(t, cmd.Error())
		}
	}
}

// withPurego lets packages of a module be built without cgo, by the tag.
func withPurego(t *testing.T, module string) {
	const purego = "github.com/ebitengine/purego"
	data, err := os.ReadFile(filepath.Join(repository(t), "go.mod"))
	require.NoError(t, err)
	ours, err := modfile.Parse("go.mod", data, nil)
	require.NoError(t, err)
	text := "module proof\n\ngo " + ours.Go.Version + "\n"
	for _, r := range ours.Require {
		if r.Mod.Path == purego {
			text += "\nrequire " + r.Mod.Path + " " + r.Mod.Version + "\n"
		}
	}
	require.Contains(t, text, purego)
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte(text), 0o666))
	sums, err := os.ReadFile(filepath.Join(repository(t), "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.sum"), sums, 0o666))
}

// otherOnWindows are the subjects that Windows has otherwise: long has 32 bits there. No
// function takes or returns one, so that all calls are right; docs/platforms.md names the types.
func otherOnWindows(t *testing.T, a *model.API) map[string]bool {
	other := map[string]bool{"isEglSupported": true} // a macro for Linux alone
	for _, d := range a.Decls {
		for _, f := range d.Fields {
			if !hasLong(f.Type) {
				continue
			}
			require.Regexp(t, `^(u?long[1-4](_\d+a)?|(struct )?cudaPointerAttributes(_anon\d+)?|nvmlValue_t)$`, d.C, "docs/platforms.md does not name it")
			other[d.C] = true
			for _, f := range d.Fields {
				other[d.C+"."+f.C] = true
			}
			break
		}
	}
	for _, fn := range a.Funcs {
		for _, p := range fn.Params {
			require.False(t, hasLong(p.Type), "%s takes a long", fn.Symbol)
		}
		require.False(t, hasLong(fn.Result), "%s returns a long", fn.Symbol)
	}
	return other
}

// hasLong tells whether a type has a long inside.
func hasLong(t *model.Type) bool {
	switch t.Kind {
	case model.Array:
		return hasLong(t.Elem)
	case model.Basic:
		return t.C == "long" || t.C == "unsigned long"
	}
	return false
}
