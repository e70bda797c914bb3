package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
)

// prove compares the layouts of a's records with those of a C compiler, and says on stderr
// which, or why none. Layouts that differ are an error.
func prove(a *model.API, c config, dirs []string, stderr io.Writer) error {
	p := newLayoutProof(a)
	if c.cc == "none" || c.cc == "" && c.headers == "" || len(p.numbers) == 0 {
		return nil
	}
	words := strings.Fields(cmp.Or(c.cc, os.Getenv("CC"), "cc"))
	if len(words) == 0 {
		words = []string{"cc"}
	}
	cc := func(args ...string) *exec.Cmd { return exec.Command(words[0], append(words[1:], args...)...) }
	got, err := p.run(a, cc, dirs)
	switch {
	case errors.Is(err, exec.ErrNotFound) && c.cc == "":
		fmt.Fprintf(stderr, "gen: no layout was compared with C: there is no C compiler %s; -cc names another one\n", words[0])
		return nil
	case err != nil && c.cc == "":
		fmt.Fprintf(stderr, "gen: no layout was compared with C: %s: %v\n", words[0], err)
		return nil
	case err != nil:
		return fmt.Errorf("-cc %s: %w", c.cc, err)
	case len(got.wrong) > 0:
		return fmt.Errorf("%s lays records of %s for %s out in another way: %s (-cc none writes the package nevertheless)", words[0], a.Header, got.system, strings.Join(got.wrong[:min(len(got.wrong), 5)], "; "))
	}
	fmt.Fprintf(stderr, "gen: all %d sizes, alignments and places of members are those that %s has for %s\n", got.compared, words[0], got.system)
	return nil
}

// run has a C compiler compile the file, in which includes are looked for in dirs.
func (p *layoutProof) run(a *model.API, cc func(args ...string) *exec.Cmd, dirs []string) (comparison, error) {
	stubs, err := os.MkdirTemp("", "gen-*")
	if err != nil {
		return comparison{}, err
	}
	defer os.RemoveAll(stubs)
	if err := os.CopyFS(stubs, parse.Stubs()); err != nil {
		return comparison{}, err
	}
	var flags []string
	if a.Row.Internal == "" { // others hide second names of types
		flags = append(flags, "-D__CUDA_API_VERSION_INTERNAL")
	}
	for _, dir := range append(dirs, stubs) {
		flags = append(flags, "-I"+dir)
	}
	object, err := p.object(cc, slices.Concat(a.Row.Before, a.HeaderNames()), flags...)
	if err != nil {
		return comparison{}, err
	}
	return p.compare(object)
}

// A layoutProof makes a C file, of which a C compiler makes an object file. The numbers are read
// from its data, so that the compiler may be one for another system.
type layoutProof struct {
	numbers []number
	bits    []number
	members []string // names, some of which can be those of macros, too
}

// A number is what the model says of a type, in bits.
type number struct {
	what string
	c    string // an expression, or the initializer of a bit field
	of   string // of a bit field: the type that it is initialized in
	long bool   // it depends on long, which the package has as Linux has it
	want func(system string) [2]int64
}

// A comparison is what an object file tells.
type comparison struct {
	system   string // that it is for
	compared int
	wrong    []string
}

// newLayoutProof collects what a says of its records.
func newLayoutProof(a *model.API) *layoutProof {
	p := &layoutProof{}
	unnamed := map[*model.Decl]bool{} // records that C has no expression for
	for _, d := range a.Decls {
		for _, f := range d.Fields {
			if f.C == "" {
				unnamed[f.Type.Decl] = true
			}
		}
	}
	for _, d := range a.Decls {
		if d.Kind != model.Struct && d.Kind != model.Union || unnamed[d] {
			continue
		}
		c := d.C
		if d.CPath != "" {
			c = "__typeof__(" + d.CPath + ")"
		}
		size := func(system string) [2]int64 { return [2]int64{8 * d.On(system).Size} }
		align := func(system string) [2]int64 { return [2]int64{8 * d.On(system).Align} }
		long := d.HasLong()
		p.numbers = append(p.numbers,
			number{what: "the size of " + d.C, c: "sizeof(" + c + ")", long: long, want: size},
			number{what: "the alignment of " + d.C, c: "_Alignof(" + c + ")", long: long, want: align})
		p.addMembers(d, c, nil)
	}
	return p
}

// addMembers adds those of d, and those of unnamed records inside it, to which path leads.
func (p *layoutProof) addMembers(d *model.Decl, c string, path []int) {
	in := d
	for _, i := range path {
		in = in.Fields[i].Type.Decl
	}
	for i, f := range in.Fields {
		path := append(slices.Clone(path), i)
		if f.C == "" {
			p.addMembers(d, c, path)
			continue
		}
		p.members = append(p.members, f.C)
		n := number{what: "the place of " + d.C + "." + f.C, c: f.C, of: c, long: d.HasLong(), want: func(system string) [2]int64 { return placeOf(d, path, system) }}
		if f.Bits > 0 {
			p.bits = append(p.bits, n)
			continue
		}
		n.c = "offsetof(" + c + ", " + f.C + ")"
		p.numbers = append(p.numbers, n)
	}
}

// placeOf is where a member lies on a system, and of a bit field its length.
func placeOf(d *model.Decl, path []int, system string) (place [2]int64) {
	for _, i := range path {
		f := d.On(system).Fields[i]
		place[0] += 8*f.Offset + f.Bit
		place[1], d = f.Bits, f.Type.Decl
	}
	return place
}

// The marks in the data of the object file.
const numbersMark, bitsMark = "cudabind:numbers", "cudabind:bitwise"

// text is the C file.
func (p *layoutProof) text(headers []string) string {
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n")
	for _, h := range headers {
		fmt.Fprintf(&b, "#include <%s>\n", h)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(p.members))) {
		if name != "defined" { // C lets no macro have this name
			fmt.Fprintf(&b, "#undef %s\n", name)
		}
	}
	b.WriteString(`
#if defined(__linux__) && defined(__x86_64__) && defined(__LP64__)
#define CUDABIND_SYSTEM 1
#elif defined(__linux__) && defined(__aarch64__) && defined(__LP64__)
#define CUDABIND_SYSTEM 2
#elif defined(_WIN64) && defined(__x86_64__)
#define CUDABIND_SYSTEM 3
#else
#define CUDABIND_SYSTEM 0
#endif
`)
	fmt.Fprintf(&b, "struct __attribute__((packed)) { char mark[16]; unsigned long long n[%d]; } cudabind_numbers = {\"%s\", {CUDABIND_SYSTEM,\n", 1+len(p.numbers), numbersMark)
	for _, n := range p.numbers {
		fmt.Fprintf(&b, "\t%s,\n", n.c)
	}
	b.WriteString("}};\n")
	for i, n := range p.bits {
		fmt.Fprintf(&b, "struct __attribute__((packed)) { char mark[16]; unsigned long long n, size; %s v; } cudabind_bits_%d = {\"%s\", %d, sizeof(%s), {.%s = -1}};\n", n.of, i, bitsMark, i, n.of, n.c)
	}
	return b.String()
}

// compare reads an object file.
func (p *layoutProof) compare(object []byte) (c comparison, err error) {
	at := bytes.Index(object, []byte(numbersMark))
	if at < 0 || len(object) < at+16+8*(1+len(p.numbers)) {
		return c, errors.New("the object file holds no numbers")
	}
	read := func(at int) int64 { return int64(binary.LittleEndian.Uint64(object[at:])) }
	n := read(at + 16)
	if n < 1 || n > int64(len(model.ABIs)) {
		return c, errors.New("it compiles for a system on which the package cannot call")
	}
	c.system = model.ABIs[n-1].Name
	onWindows := model.ABIs[n-1].GOOS == "windows"
	for i, number := range p.numbers {
		if onWindows && number.long {
			continue
		}
		c.compared++
		if want, got := number.want(c.system), 8*read(at+24+8*i); got != want[0] {
			c.wrong = append(c.wrong, fmt.Sprintf("%s: %d bytes in C, %d here", number.what, got/8, want[0]/8))
		}
	}
	seen := 0
	for rest := object; ; seen++ {
		at := bytes.Index(rest, []byte(bitsMark))
		if at < 0 || len(rest) < at+32 {
			break
		}
		rest = rest[at+16:]
		i, size := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		if i >= uint64(len(p.bits)) || size > uint64(len(rest)-16) {
			return c, errors.New("the object file holds other bit fields")
		}
		got := ones(rest[16 : 16+size])
		rest = rest[16:]
		if onWindows && p.bits[i].long {
			continue
		}
		c.compared++
		if want := p.bits[i].want(c.system); got != want {
			c.wrong = append(c.wrong, fmt.Sprintf("%s: %d bits from bit %d on in C, %d from bit %d on here", p.bits[i].what, got[1], got[0], want[1], want[0]))
		}
	}
	if seen != len(p.bits) {
		return c, errors.New("the object file holds not all bit fields")
	}
	return c, nil
}

// ones is where the bits lie that are set, and how many they are.
func ones(data []byte) (place [2]int64) {
	for i := range 8 * len(data) {
		if data[i/8]>>(i%8)&1 == 0 {
			continue
		}
		if place[1] == 0 {
			place[0] = int64(i)
		}
		place[1]++
	}
	return place
}

// object compiles the C file.
func (p *layoutProof) object(cc func(args ...string) *exec.Cmd, headers []string, flags ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "gen-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, object := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout.o")
	if err := os.WriteFile(source, []byte(p.text(headers)), 0o666); err != nil {
		return nil, err
	}
	cmd := cc(append(flags, "-w", "-O0", "-c", "-o", object, source)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, firstError(string(out)))
	}
	return os.ReadFile(object)
}

// firstError is the line of a compiler's output that says what is wrong.
func firstError(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "error: ") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(out)
}
