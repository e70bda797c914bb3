package main

import (
	"bytes"
	"flag"
	"fmt"
	gobuild "go/build"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/doc"
	"github.com/cudabind/cudabind/gen/emit"
	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
)

var (
	layoutCount = flag.Int("layouts", 400, "how many records TestRandomLayouts makes")
	layoutSeed  = flag.Uint64("seed", 0, "what TestRandomLayouts makes them of (default: anything)")
)

// compilers lay records out as those of the systems do that packages call on. That for
// Windows follows Microsoft's (-mms-bitfields) by default.
var compilers = map[string]string{"linux_amd64": "gcc", "linux_arm64": "aarch64-linux-gnu-gcc", "windows_amd64": "x86_64-w64-mingw32-gcc"}

// TestRandomLayouts compares records made at random with what C compilers make of them, and
// some of them with what the Go compiler makes of the package.
func TestRandomLayouts(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	seed := *layoutSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d records of seed %d", *layoutCount, seed)
	t.Run("go", func(t *testing.T) {
		_, api, _ := randomAPI(t, seed, *layoutCount/10)
		layoutsInGo(t, api)
	})
	random, api, dir := randomAPI(t, seed, *layoutCount)
	for system, compiler := range compilers {
		t.Run(system, func(t *testing.T) {
			if _, err := exec.LookPath(compiler); err != nil {
				unproven(t, "no C compiler: "+err.Error())
			}
			cc := func(args ...string) *exec.Cmd { return exec.Command(compiler, args...) }
			p := newLayoutProof(api)
			object, err := p.object(cc, []string{"cuda.h"}, "-I"+dir)
			require.NoError(t, err)
			got, err := p.compare(object)
			require.NoError(t, err)
			assert.Equal(t, system, got.system)
			assert.Equal(t, len(p.numbers)+len(p.bits), got.compared)
			for _, w := range got.wrong[:min(len(got.wrong), 5)] {
				t.Errorf("%s\n%s", w, random.source(w))
			}
			t.Logf("%d numbers and %d bit fields compared, %d wrong", len(p.numbers), len(p.bits), len(got.wrong))
		})
	}
}

// randomAPI is an API of records made at random, and the include folder that it is from.
func randomAPI(t *testing.T, seed uint64, records int) (*randomRecords, *model.API, string) {
	random := &randomRecords{Rand: rand.New(rand.NewPCG(seed, 0))}
	for range records {
		random.record()
	}
	dir := include(t, random.text(), nil)
	api, err := parse.Parse(os.DirFS(dir), "driver")
	require.NoError(t, err)
	require.NoError(t, model.Complete(api, model.Options{Partial: true}))
	return random, api, dir
}

// layoutsInGo compares the records of an API with what the Go compiler makes of them, those for
// all systems on this one.
func layoutsInGo(t *testing.T, api *model.API) {
	require.NoError(t, doc.Fill(api, nil))
	files, err := emit.Files(api, emit.Package{Name: api.Row.API, Import: "example.com/small", Doc: doc.Package(api, api.Row.API)})
	require.NoError(t, err)
	require.NoError(t, check(api, t.TempDir(), files))
	module := folder(t, map[string]string{"go.mod": "module example.com/small\n\ngo 1.24\n"})
	numbers := 0
	for _, abi := range model.ABIs {
		there := *api
		there.Decls = nil
		for _, d := range api.Decls {
			there.Decls = append(there.Decls, d.On(abi.Name))
		}
		p := proof{api: &there, pkg: filepath.Join(module, abi.Name)}
		b := gobuild.Context{GOOS: abi.GOOS, GOARCH: abi.GOARCH, Compiler: "gc"}
		require.NoError(t, os.Mkdir(p.pkg, 0o777))
		for name, text := range files {
			if built(b, name, text) {
				text = bytes.ReplaceAll(text, []byte("//go:build"), []byte("// for"))
				require.NoError(t, os.WriteFile(filepath.Join(p.pkg, strings.ReplaceAll(name, "_", "")), text, 0o666))
			}
		}
		numbers += p.writeLayoutTest(t)
	}
	goTool(t, module, nil, "test", "./...")
	t.Logf("%d numbers of three systems compared with Go", numbers)
}

// randomRecords writes records.
type randomRecords struct {
	*rand.Rand
	records []string // as typedefs of R0, R1 and so on
	member  int      // the number of the next one
}

func (r *randomRecords) text() string {
	return "enum Small { SMALL_A, SMALL_B };\nenum Signed { SIGNED_A = -1, SIGNED_B };\n" +
		"enum Byte { BYTE_A, BYTE_B = 255 } __attribute__((packed));\nenum __attribute__((packed)) Short { SHORT_A = -1, SHORT_B = 128 };\n" +
		"typedef int low __attribute__((aligned(2)));\ntypedef short high __attribute__((aligned(8)));\ntypedef _Bool flag;\n" + strings.Join(r.records, "")
}

// source is the record that a message is about.
func (r *randomRecords) source(message string) string {
	for i := range r.records {
		if strings.Contains(message, fmt.Sprintf(" R%d:", i)) || strings.Contains(message, fmt.Sprintf(" R%d.", i)) || strings.Contains(message, fmt.Sprintf(" R%d_", i)) {
			return r.records[i]
		}
	}
	return ""
}

func (r *randomRecords) one(of ...string) string { return of[r.IntN(len(of))] }

// in is true once in n times.
func (r *randomRecords) in(n int) bool { return r.IntN(n) == 0 }

func (r *randomRecords) record() {
	kind, before, after := "struct", "", ""
	if r.in(6) {
		kind = "union"
	}
	if r.in(5) {
		before = "__attribute__((packed)) "
	}
	if r.in(8) {
		after = fmt.Sprintf(" __attribute__((aligned(%d)))", 1<<r.IntN(7))
	}
	n := len(r.records)
	text := fmt.Sprintf("typedef %s %sS%d {\n%s}%s R%d;\n", kind, before, n, r.members(0), after, n)
	switch {
	case r.in(8):
		text = fmt.Sprintf("#pragma pack(push, %d)\n%s#pragma pack(pop)\n", 1<<r.IntN(5), text)
	case r.in(16):
		text = fmt.Sprintf("#pragma pack(%d) // %d\n%s#  pragma pack ( )\n", 1<<r.IntN(5), n, text)
	case r.in(16):
		text = fmt.Sprintf("#pragma pack(push)\n#pragma pack(%d)\n%s#pragma pack(pop) /* %d */\n", 1<<r.IntN(5), text, n)
	}
	r.records = append(r.records, text)
}

func (r *randomRecords) members(depth int) string {
	var b strings.Builder
	for range 1 + r.IntN(7) {
		indent := strings.Repeat("\t", depth+1)
		b.WriteString(indent + r.declaration(depth) + ";\n")
	}
	// One with a name, which C wants.
	fmt.Fprintf(&b, "%s%s m%d;\n", strings.Repeat("\t", depth+1), r.plain(), r.member)
	r.member++
	return b.String()
}

var widths = []struct {
	c    string
	bits int
}{
	{"char", 8}, {"signed char", 8}, {"unsigned char", 8}, {"short", 16}, {"unsigned short", 16}, {"int", 32}, {"unsigned", 32},
	{"long long", 64}, {"unsigned long long", 64}, {"_Bool", 1}, {"enum Small", 32}, {"enum Signed", 32}, {"enum Byte", 8}, {"enum Short", 16},
	{"flag", 1},
}

func (r *randomRecords) plain() string {
	if n := len(r.records); n > 0 && r.in(6) {
		return r.one("R", "const R") + fmt.Sprint(r.IntN(n))
	}
	return r.one("char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long", "_Bool", "float", "double", "void *", "enum Small", "enum Byte", "enum Short", "low", "high")
}

func (r *randomRecords) attribute() string {
	switch {
	case r.in(12):
		return " __attribute__((packed))"
	case r.in(12):
		return fmt.Sprintf(" __attribute__((aligned(%d)))", 1<<r.IntN(6))
	}
	return ""
}

func (r *randomRecords) declaration(depth int) string {
	name := fmt.Sprint("m", r.member)
	r.member++
	switch {
	case depth < 2 && r.in(12):
		return r.one("struct", "union") + r.one(" ", " ", " __attribute__((packed)) ") + "{\n" + r.members(depth+1) + strings.Repeat("\t", depth+1) + "}" + r.one("", " "+name, " "+name+"[2]")
	case r.in(2):
		w := widths[r.IntN(len(widths))]
		bits := 1 + r.IntN(w.bits)
		unnamed := !strings.HasPrefix(w.c, "enum") // the parser reads a type of the enum there
		switch {
		case unnamed && r.in(12):
			return w.c + " : 0"
		case unnamed && r.in(8):
			return fmt.Sprintf("%s : %d", w.c, bits)
		}
		return fmt.Sprintf("%s %s : %d%s", w.c, name, bits, r.attribute())
	case r.in(5):
		return fmt.Sprintf("%s %s[%d]", r.one("char", "short", "int", "double", "_Bool", "void *"), name, 1+r.IntN(4))
	case r.in(20):
		return "_Alignas(16) int " + name
	}
	if r.in(12) {
		return r.one("__attribute__((packed)) ", "__attribute__((aligned(8))) ") + r.one("char", "int", "_Bool", "double", "void *") + " " + name
	}
	return r.plain() + " " + name + r.attribute()
}
