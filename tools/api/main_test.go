package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folder makes a folder of files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	}
	return dir
}

// apiOf returns the lines of package a/p, beside which stands a/raw.
func apiOf(t *testing.T, files map[string]string) []string {
	t.Helper()
	all := map[string]string{"raw/raw.go": "package raw\ntype Handle uintptr\nfunc (Handle) Valid() bool { return true }\n"}
	for name, text := range files {
		all["p/"+name] = text
	}
	l, err := newLoader(folder(t, all), "example.com/a")
	require.NoError(t, err)
	p, err := l.Import("example.com/a/p")
	require.NoError(t, err)
	return lines(p)
}

func TestLines(t *testing.T) {
	for _, c := range []struct{ name, code, want string }{
		{"a function, without the names of its parameters", "func F(a, b int, f func(x string) error, more ...any) (n int, err error) { return }", "func F(int, int, func(string) error, ...any) (int, error)"},
		{"a type of another package", "import \"example.com/a/raw\"\nimport \"context\"\nfunc F(context.Context) *raw.Handle { return nil }", "func F(context.Context) *raw.Handle"},
		{"a function of types", "func F[K comparable, V ~int | ~string](map[K]V) {}", "func F[K comparable, V ~int | ~string](map[K]V)"},
		{"nothing exported", "func f() {}\ntype t struct{ X int }\nfunc (t) M() {}\nvar v int\nconst c = 1", ""},
		{"constants", "type T uint8\nconst (\nA T = iota\nB\n_\nc\nD\n)\nconst E, F = \"e\", 1 << 62", "const A T = 0\nconst B T = 1\nconst D T = 4\nconst E untyped string = \"e\"\nconst F untyped int = 4611686018427387904\ntype T uint8"},
		{"a variable", "import \"errors\"\nvar Err = errors.New(\"\")", "var Err error"},
		{"methods of both kinds", "type T int\nfunc (T) Get() int { return 0 }\nfunc (*T) Set(v int) {}\nfunc (T) hidden() {}", "method (*T) Set(int)\nmethod (T) Get() int\ntype T int"},
		{"fields and embedded types", "type t struct{ X int; y int }\nfunc (*t) M() {}\ntype E struct{}\ntype S struct { t; *E; Z []byte; w int }", "method (*S) M()\ntype E struct\ntype S struct\ntype S struct, X int\ntype S struct, Z []byte\ntype S struct, embeds *E"},
		{"a type of types", "type B[T any] struct{ V T }\nfunc (b *B[T]) Set(v T) {}", "method (*B[T]) Set(T)\ntype B[T any] struct\ntype B[T any] struct, V T"},
		{"an interface", "type I interface { error; M(a int); hidden() }", "type I interface\ntype I interface, M(int)\ntype I interface, embeds error\ntype I interface, unexported methods"},
		{"an alias", "import \"example.com/a/raw\"\ntype H = raw.Handle", "type H = raw.Handle"},
		{"C", "// int x;\nimport \"C\"\nfunc F() int { return int(C.x) }", "func F() int"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, strings.Join(apiOf(t, map[string]string{"p.go": "package p\n" + c.code}), "\n"))
		})
	}
}

// TestAnyMachine: the API is that of linux/amd64 with cgo.
func TestAnyMachine(t *testing.T) {
	files := map[string]string{
		"a_linux.go":   "package p\nfunc Linux() {}\n",
		"a_amd64.go":   "package p\nfunc Amd64() {}\n",
		"a_windows.go": "package p\nfunc Windows() {}\n",
		"a_arm64.go":   "package p\nfunc Arm64() {}\n",
		"cgo.go":       "//go:build cgo\n\npackage p\nfunc Cgo() {}\n",
		"other.go":     "//go:build !cgo\n\npackage p\nfunc Other() {}\n",
		"a_test.go":    "package p\nfunc Test() {}\n",
	}
	for _, env := range [][]string{{"CGO_ENABLED=0"}, {"CGO_ENABLED=1"}, {"GOOS=windows"}, {"GOARCH=arm64"}, {"CC=no-such-compiler"}} {
		t.Run(strings.Join(env, ","), func(t *testing.T) {
			for _, e := range env {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			assert.Equal(t, []string{"func Amd64()", "func Cgo()", "func Linux()"}, apiOf(t, files))
		})
	}
}

func TestRun(t *testing.T) {
	dir := folder(t, map[string]string{"api/README.md": "", "p/p.go": "package p\nfunc F(int) {}\nfunc G() {}\n"})
	check := func(o options) (string, error) {
		var b bytes.Buffer
		err := run(dir, "example.com/a", []string{"p"}, o, &b)
		return b.String(), err
	}
	said, err := check(options{})
	assert.ErrorContains(t, err, "make api")
	assert.Equal(t, "p differs from api/p.txt:\n  + func F(int)\n  + func G()\n", said)

	_, err = check(options{write: true})
	require.NoError(t, err)
	said, err = check(options{})
	assert.NoError(t, err)
	assert.Empty(t, said)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "p/p.go"), []byte("package p\nfunc F(string) {}\nfunc G() {}\n"), 0o666))
	said, err = check(options{})
	assert.ErrorContains(t, err, "CHANGELOG.md")
	assert.Equal(t, "p differs from api/p.txt:\n  - func F(int)\n  + func F(string)\n", said)
	_, err = check(options{write: true})
	assert.EqualError(t, err, "api/ would lose lines (1): undo that, or see docs/versioning.md for when they may, and add -remove")
	text, err := os.ReadFile(filepath.Join(dir, "api/p.txt"))
	require.NoError(t, err)
	assert.Equal(t, "func F(int)\nfunc G()\n", string(text), "as it was")
	_, err = check(options{write: true, remove: true})
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "p/p.go"), []byte("package p\nfunc F(Missing) {}\n"), 0o666))
	_, err = check(options{write: true})
	assert.ErrorContains(t, err, "undefined: Missing")
	text, err = os.ReadFile(filepath.Join(dir, "api/p.txt"))
	require.NoError(t, err)
	assert.Equal(t, "func F(string)\nfunc G()\n", string(text), "as it was")
}

// TestValues: the value of a constant may change where CUDA decides on it, its type and its name may not.
func TestValues(t *testing.T) {
	for _, tt := range []struct {
		name, pkg, now string
		lost           int
	}{
		{"another value", "cuda/generated/p", "const C = 2", 0},
		{"another value of the newest version", "tools/simdriver/sim", "const C = 2", 0},
		{"another value elsewhere", "cuda/safe", "const C = 2", 1},
		{"another type", "cuda/generated/p", "const C int64 = 1", 1},
		{"another name", "cuda/generated/p", "const CX = 1", 1},
		{"no constant any more", "cuda/generated/p", "var C = 1", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := filepath.FromSlash(tt.pkg + "/p.go")
			dir := folder(t, map[string]string{"api/README.md": "", code: "package p\nconst C = 1\n"})
			require.NoError(t, run(dir, "example.com/a", []string{tt.pkg}, options{write: true}, io.Discard))
			require.NoError(t, os.WriteFile(filepath.Join(dir, code), []byte("package p\n"+tt.now+"\n"), 0o666))
			err := run(dir, "example.com/a", []string{tt.pkg}, options{write: true}, io.Discard)
			if tt.lost == 0 {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, fmt.Sprintf("api/ would lose lines (%d)", tt.lost))
			}
		})
	}
}
