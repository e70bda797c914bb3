package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/tools/kernels/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	echoCount = flag.Int("echo", 30, "how many random kernels TestEcho makes")
	echoSeed  = flag.Uint64("seed", 20261127, "what they follow from")
	echoNVRTC = flag.String("nvrtc", "13.0", "the version of NVRTC")
	echoArchs = flag.String("images", "sm_90", "for what it compiles")
	echoOut   = flag.String("out", "", "where TestEcho leaves the package, in this folder, for a GPU; \"\" deletes it")
)

// A leaf is a value in a random struct, or a parameter.
type leaf struct {
	path   string   // in C++: "a.b[1].c"
	fields []string // in Go: A, B, [1], C
	ctype  string
	gotype string
	size   int
	bits   int
	value  uint64
}

// A random makes structs and kernels with random members. A kernel writes each leaf that it gets, in order,
// without padding: what it writes shows where it has found them.
type random struct {
	*rand.Rand
	structs int // declared so far
	source  strings.Builder
}

type scalar struct {
	c, go_ string
	size   int
}

var scalars = []scalar{
	{"char", "uint8", 1}, {"signed char", "int8", 1}, {"unsigned char", "uint8", 1}, {"short", "int16", 2}, {"unsigned short", "uint16", 2},
	{"int", "int32", 4}, {"unsigned", "uint32", 4}, {"long long", "int64", 8}, {"unsigned long long", "uint64", 8}, {"float", "float32", 4}, {"double", "float64", 8},
}

// named are types that a source declares for members.
const named = `enum class Small : signed char { Less = -1, More = 1 };
enum Wide : unsigned { None, All = 0xffffffffu };
struct Nothing {};
`

// member returns a declaration and the leaves in it.
func (r *random) member(name string, deep int, packed bool) (string, []leaf) {
	all := append(slices.Clone(scalars), scalar{"bool", "bool", 1}, scalar{"Small", "int8", 1}, scalar{"Wide", "uint32", 4})
	s := all[r.IntN(len(all))]
	goName := model.Camel(name)
	one := func(suffix string, fields ...string) leaf {
		return leaf{path: name + suffix, fields: append([]string{goName}, fields...), ctype: s.c, gotype: s.go_, size: s.size}
	}
	inside := func(inner []leaf) (all []leaf) {
		for _, l := range inner {
			l.path, l.fields = name+"."+l.path, append([]string{goName}, l.fields...)
			all = append(all, l)
		}
		return all
	}
	switch kind := r.IntN(20); {
	case kind < 3:
		n := 1 + r.IntN(3)
		var all []leaf
		for i := range n {
			all = append(all, one(fmt.Sprintf("[%d]", i), fmt.Sprintf("[%d]", i)))
		}
		return fmt.Sprintf("%s %s[%d];", s.c, name, n), all
	case kind < 5:
		n, m := 1+r.IntN(3), 1+r.IntN(3)
		var all []leaf
		for i := range n * m {
			x, y := fmt.Sprintf("[%d]", i/m), fmt.Sprintf("[%d]", i%m)
			all = append(all, one(x+y, x, y))
		}
		return fmt.Sprintf("%s %s[%d][%d];", s.c, name, n, m), all
	case kind < 10 && packed:
	case kind < 8 && deep < 3:
		of, inner := r.record(deep + 1)
		return fmt.Sprintf("%s %s;", of, name), inside(inner)
	case kind < 9 && deep < 3: // a union of which the last member counts
		first, _ := r.member(name+"a", deep+1, false)
		second, inner := r.member(name+"b", deep+1, false)
		if r.IntN(2) == 0 {
			return fmt.Sprintf("union { %s %s };", first, second), inner
		}
		return fmt.Sprintf("union { %s %s } %s;", first, second, name), inside(inner)
	case kind < 10 && deep < 3: // an array of structs
		of, inner := r.record(deep + 1)
		var all []leaf
		for i := range 2 {
			for _, l := range inner {
				l.path, l.fields = fmt.Sprintf("%s[%d].%s", name, i, l.path), append([]string{goName, fmt.Sprintf("[%d]", i)}, l.fields...)
				all = append(all, l)
			}
		}
		return fmt.Sprintf("%s %s[2];", of, name), all
	case kind < 11 && deep == 0:
		return fmt.Sprintf("Nothing %s;", name), nil
	case kind < 12:
		return fmt.Sprintf("int (*%s)(int);", name), []leaf{{path: name, fields: []string{goName}, ctype: "unsigned long long", gotype: "uint64", size: 8}}
	}
	return fmt.Sprintf("%s %s;", s.c, name), []leaf{one("")}
}

// record declares a random struct and returns its name and leaves. Packed structs and empty ones are in the outermost
// alone, and no base is empty: NVRTC lets kernels read packed structs inside of others at addresses that are not aligned,
// which faults, and what comes after empty bases at other offsets than it says in the debug information.
func (r *random) record(deep int) (string, []leaf) {
	var body strings.Builder
	var all []leaf
	packed := deep == 0 && r.IntN(8) == 0
	base := ""
	if r.IntN(4) == 0 && deep < 3 && !packed {
		of, inner := r.record(deep + 1)
		base = " : " + of
		all = append(all, inner...) // Go and C++ promote them
		if r.IntN(2) == 0 {
			of, inner := r.record(deep + 1)
			base += ", " + of
			all = append(all, inner...)
		}
	}
	id := r.structs
	r.structs++
	bits := r.IntN(5) == 0 && !packed
	for i := range 1 + r.IntN(5) {
		name := fmt.Sprintf("m%d_%d", id, i)
		if bits && r.IntN(2) == 0 {
			s := scalars[r.IntN(len(scalars)-2)] // those that are integers
			n := 1 + r.IntN(8*s.size)
			fmt.Fprintf(&body, "%s %s : %d; ", s.c, name, n)
			all = append(all, leaf{path: name, fields: []string{model.Camel(name)}, ctype: s.c, gotype: s.go_, size: s.size, bits: n})
			continue
		}
		text, leaves := r.member(name, deep, packed)
		align := ""
		if !strings.HasPrefix(text, "S") && !strings.HasPrefix(text, "int (") && !strings.HasPrefix(text, "union") && !packed && r.IntN(8) == 0 {
			align = fmt.Sprintf("alignas(%d) ", 1<<(3+r.IntN(3)))
		}
		body.WriteString(align + text + " ")
		all = append(all, leaves...)
	}
	name := fmt.Sprintf("S%d", id)
	if packed {
		fmt.Fprintf(&r.source, "#pragma pack(push, 1)\nstruct %s%s { %s};\n#pragma pack(pop)\n", name, base, body.String())
	} else {
		fmt.Fprintf(&r.source, "struct %s%s { %s};\n", name, base, body.String())
	}
	return name, all
}

// values gives each leaf a value that shows its bytes.
func (r *random) values(all []leaf) {
	for i := range all {
		l := &all[i]
		switch n := 8 * l.size; {
		case l.bits > 0:
			l.value = r.Uint64() & (1<<l.bits - 1)
			if (strings.HasPrefix(l.gotype, "int") || l.ctype == "char") && l.value>>(l.bits-1) == 1 {
				l.value |= ^uint64(0) << l.bits
			}
		case l.gotype == "bool":
			l.value = r.Uint64() & 1
		default:
			l.value = r.Uint64() >> (64 - n)
		}
	}
}

// set is a statement of Go that sets a leaf in a variable v.
func (l *leaf) set() string {
	var quoted []string
	for _, f := range l.fields {
		quoted = append(quoted, strconv.Quote(f))
	}
	return fmt.Sprintf("set(reflect.ValueOf(&v).Elem(), %#x, %s)", l.value&(^uint64(0)>>(64-8*l.size)), strings.Join(quoted, ", "))
}

// expected are the bytes that a kernel writes for a leaf.
func (l *leaf) expected() (b []byte) {
	for i := range l.size {
		b = append(b, byte(l.value>>(8*i)))
	}
	return b
}

// TestEcho makes random kernels and structs, binds them, and compares what each field is in Go with what it is in
// C++: on the host in memory that Go has written; and on a GPU, if a package made with -out runs there.
func TestEcho(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++ to compare with")
	}
	kernels := tool(t)
	dir := *echoOut
	if dir == "" {
		var err error
		dir, err = os.MkdirTemp(".", "_echo") // in this module
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
	} else {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	r := &random{Rand: rand.New(rand.NewPCG(*echoSeed, 1))}
	r.source.WriteString("#ifdef HOST\n#define __global__\n#define __device__\n#endif\n" +
		named + "template<class T> __device__ void put(unsigned char *&o, T v) { for (unsigned i = 0; i < sizeof v; i++) *o++ = ((unsigned char *)&v)[i]; }\n")
	var tests, hosts, functions strings.Builder
	for i := range *echoCount {
		name, leaves := r.record(0)
		r.values(leaves)
		s := scalars[r.IntN(len(scalars))]
		fmt.Fprintf(&r.source, "extern \"C\" __global__ void echo%d(%s first, %s s, unsigned char *out, const void *v) {\n\tput(out, first);\n\tconst %s *p = (const %s *)v;\n", i, s.c, name, name, name)
		first := leaf{ctype: s.c, gotype: s.go_, size: s.size, value: r.Uint64() >> (64 - 8*s.size)}
		want := first.expected()
		var sets strings.Builder
		for _, from := range []string{"s.", "p->"} {
			for _, l := range leaves {
				fmt.Fprintf(&r.source, "\tput(out, (%s)%s%s);\n", l.ctype, from, l.path)
				want = append(want, l.expected()...)
			}
		}
		for _, l := range leaves {
			fmt.Fprintf(&sets, "\t%s\n", l.set())
		}
		r.source.WriteString("}\n")
		fmt.Fprintf(&functions, `
func value%[1]d() (v %[2]s) {
%[3]s	return v
}

func run%[1]d(e *Echo, s *safe.Stream, x *safe.Context, out *safe.Buffer[uint8]) error {
	v := value%[1]d()
	p, err := safe.Upload(x, bytesOf(&v)) // of one type, as each costs the Go compiler some 20 ms
	if err != nil {
		return err
	}
	return e.Echo%[1]d.Launch(s, one, bits[%[4]s](%#[5]x), v, out, p)
}

func bytes%[1]d() []byte { v := value%[1]d(); return bytesOf(&v) }
`, i, name, sets.String(), s.go_, first.value)
		fmt.Fprintf(&tests, "\t{\"echo%[1]d\", \"%[2]x\", run%[1]d, bytes%[1]d},\n", i, want)
		fmt.Fprintf(&hosts, "\tcase %d: { %s s; read(&s, sizeof s); echo%d(bits<%s>(%#xull), s, o, &s); break; }\n", i, name, i, s.c, first.value)
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("echo.cu", r.source.String())
	write("host.cpp.txt", fmt.Sprintf(echoHost, hosts.String()))
	write("echo_test.go", fmt.Sprintf(echoGo, functions.String(), tests.String()))
	out, err := exec.Command(kernels, "-package", "echo", "-image", *echoArchs, "-o", dir, "-nvrtc", nvrtcFolder(t, *echoNVRTC), filepath.Join(dir, "echo.cu")).CombinedOutput()
	require.NoError(t, err, "%s", out)

	host := filepath.Join(t.TempDir(), "host")
	out, err = exec.Command("g++", "-w", "-O1", "-x", "c++", "-o", host, filepath.Join(dir, "host.cpp.txt")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	test := exec.Command("go", "test", "-vet=off", "-count=1", "./"+filepath.ToSlash(dir))
	test.Env = append(os.Environ(), "ECHO_HOST="+host)
	out, err = test.CombinedOutput()
	assert.NoError(t, err, "%.4000s", out)
}

const echoHost = `#define HOST
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include "echo.cu"
static void read(void *to, size_t n) { if (fread(to, 1, n, stdin) != n || getchar() != EOF) { fprintf(stderr, "%%zu bytes\n", n); exit(2); } }
template<class T> T bits(unsigned long long v) { T t; memcpy(&t, &v, sizeof t); return t; }
int main(int, char **argv) {
	static unsigned char out[1 << 16], *o = out;
	switch (atoi(argv[1])) {
%s	}
	fwrite(out, 1, sizeof out, stdout);
}
`

const echoGo = `package echo

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"reflect"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/safe"
)

// set sets the value on a path of fields, methods and indexes.
func set(v reflect.Value, value uint64, path ...string) {
	if len(path) == 0 {
		copy(unsafe.Slice((*byte)(v.Addr().UnsafePointer()), v.Type().Size()), unsafe.Slice((*byte)(unsafe.Pointer(&value)), 8))
		return
	}
	if path[0][0] == '[' {
		i, _ := strconv.Atoi(path[0][1 : len(path[0])-1])
		set(v.Index(i), value, path[1:]...)
		return
	}
	if f := v.FieldByName(path[0]); f.IsValid() {
		set(f, value, path[1:]...)
		return
	}
	get, put := v.Addr().MethodByName(path[0]), v.Addr().MethodByName("Set"+path[0])
	for i := 0; !get.IsValid(); i++ { // the member of a base that is in storage
		if name := v.Addr().Type().Method(i).Name; name[0] == 'S' && name[:3] != "Set" {
			get, put, path = v.Addr().Method(i), v.Addr().MethodByName("Set"+name), append([]string{name}, path...)
		}
	}
	copied := reflect.New(get.Type().Out(0)).Elem()
	copied.Set(get.Call(nil)[0])
	set(copied, value, path[1:]...)
	put.Call([]reflect.Value{copied})
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

// bits returns the value that has these bits.
func bits[T any](v uint64) T { return *(*T)(unsafe.Pointer(&v)) }

func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

%s
var tests = []struct {
	name  string
	want  string // in hexadecimal
	run   func(e *Echo, s *safe.Stream, x *safe.Context, out *safe.Buffer[uint8]) error
	bytes func() []byte
}{
%s}

// TestHost lets a C++ compiler read what Go has written.
func TestHost(t *testing.T) {
	host := os.Getenv("ECHO_HOST")
	if host == "" {
		t.Skip("ECHO_HOST is not set")
	}
	for i, test := range tests {
		c := exec.Command(host, strconv.Itoa(i))
		c.Stdin = bytes.NewReader(test.bytes())
		got, err := c.Output()
		if found := fmt.Sprintf("%%x", got[:min(len(got), len(test.want)/2)]); err != nil || found != test.want {
			t.Errorf("%%s: %%v\n got %%s\nwant %%s", test.name, err, found, test.want)
		}
	}
}

// TestDevice lets kernels read it.
func TestDevice(t *testing.T) {
	if os.Getenv("CUDABIND_REQUIRE_GPU") == "" {
		t.Skip("CUDABIND_REQUIRE_GPU is not set")
	}
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	x, err := safe.Open(0)
	check(err)
	e, err := LoadEcho(x)
	check(err)
	s, err := safe.NewStream(x)
	check(err)
	out, err := safe.NewBuffer[uint8](x, 1<<16)
	check(err)
	for _, test := range tests {
		check(test.run(e, s, x, out))
		check(s.Synchronize())
		got, err := out.Download()
		check(err)
		if found := fmt.Sprintf("%%x", got[:len(test.want)/2]); found != test.want {
			t.Errorf("%%s:\n got %%s\nwant %%s", test.name, found, test.want)
		}
	}
	t.Log(len(tests), "kernels")
}
`
