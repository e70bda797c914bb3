//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package compile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzStale makes a random source with random headers for each seed. It compiles it with the cache,
// changes the headers a few times, and compares with what the compiler makes of them each time.
// This runs it for as long as one likes, and prints the seed of a failure:
//
//	go test -run '^$' -fuzz FuzzStale -fuzztime 5m ./cuda/safe/compile
func FuzzStale(f *testing.F) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		needsNVRTC(t, "")
		newStaleProgram(seed, t.TempDir()).run(t, seed)
	})
}

type staleProgram struct {
	*rand.Rand
	dir  string
	wild int // one word in so many is an odd one; most odd ones do not compile
}

func newStaleProgram(seed uint64, dir string) *staleProgram {
	random := rand.New(rand.NewPCG(seed, 1))
	return &staleProgram{random, dir, []int{4, 20, 100, 1000}[random.IntN(4)]}
}

func (s *staleProgram) odd() bool { return s.IntN(s.wild) == 0 }

func (s *staleProgram) of(words ...string) string { return words[s.IntN(len(words))] }

// repeated returns 0 to n-1 texts.
func (s *staleProgram) repeated(n int, next func() string) string {
	var b strings.Builder
	for range s.IntN(n) {
		b.WriteString(next())
	}
	return b.String()
}

// blank may stand between the words of a directive.
func (s *staleProgram) blank() string {
	if !s.odd() {
		return s.of(" ", " ", "\t", "/* c */", "\\\n", "\v")
	}
	return s.repeated(3, func() string {
		return s.of(" ", " ", " ", "\t", "\v", "\f", "/* c */", "/* a\nb */", "/**/", "\\\n", "\\\r\n", "\r", "??/\n", "\\ \n", "/*\\\n*/", "/\\\n* x */")
	})
}

// torn is a word that may be in several lines.
func (s *staleProgram) torn(word string) string {
	n := s.IntN(len(word))
	if !s.odd() {
		return word[:n] + s.of("", "", "", "\\\n", "\\\r\n") + word[n:]
	}
	return word[:n] + s.of("\\\n", "\\\r\n", "??/\n", "\\ \n", "\\\r", "\\\\\n\n", "\\\n\\\n", "##", "/**/", "\\u0069") + word[n:]
}

func (s *staleProgram) file() string {
	if !s.odd() {
		return s.of("a.h", "b.h", "c", "sub/a.h", "./b.h", "now/a.h")
	}
	return s.of("a.h", "a.h", "b.h", "b.h", "c", "sub/a.h", "./b.h", "sub/../a.h", "sub//d.h", "../inc/a.h", "d.h", "link.h", s.dir+"/inc/a.h")
}

func (s *staleProgram) name() string {
	return s.of(`"`+s.file()+`"`, "<"+s.file()+">", `"`+s.torn(s.file())+`"`, "NAME", "STR("+s.file()+")", "ANGLE(a)")
}

func (s *staleProgram) operator() string {
	if !s.odd() {
		return s.of("__has_include", "__has_include", "HI", "PASTE(__has_,include)")
	}
	return s.of("__has_include", s.torn("__has_include"), "HI", "PASTE(__has_,include)", "PASTE(__has,_include)", "PASTE(_,_has_include)", "VAPASTE(__has_inc,lude)", "__has_include_next", "PASTE(HAS,INC)", "HAS(include)")
}

func (s *staleProgram) directive() string {
	if s.odd() {
		return s.of("include_next", "import", "embed", "include_next")
	}
	return "include"
}

// line is one that may name a file or hide a name.
func (s *staleProgram) line() string {
	hash := s.blank() + s.of("#", "#", "%:") + s.blank()
	if s.odd() {
		hash = s.blank() + s.of("??=", s.torn("%:"), "\r#", "x\r#") + s.blank()
	}
	switch s.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		return hash + s.torn(s.directive()) + s.blank() + s.name() + s.of("", " // x", "\r") + "\n"
	case 6, 7, 8, 9:
		not := s.of("", "!", "0 || ", "defined(__has_include) && ")
		return hash + "if " + not + s.operator() + s.blank() + "(" + s.blank() + s.name() + s.blank() + ")\n#define W" + fmt.Sprint(s.IntN(4)) + " 100\n#endif\n"
	case 10:
		if !s.odd() {
			return s.of("// ", "/* */ ") + s.torn("#include \"a.h\"") + "\n"
		}
		return s.of("// ", "/* ", "\"", "R\"(", "R\"x(", "'") + s.torn("#include \"a.h\"") + s.of("\n", " */\n", "\"\n", ")\"\n", ")x\"\n", "\\\n") + "\n"
	case 11:
		return hash + "define " + s.of("HI __has_include", "NAME \"a.h\"", "NAME <b.h>", "STR(x) #x", "ANGLE(x) <x.h>", "PASTE(a,b) a##b", "PASTE(a,b) a%:%:b", "VAPASTE(a,...) a##__VA_ARGS__", "HAS __has_", "INC include", "include import", "HAS(x) __has_##x") + "\n"
	case 12:
		if !s.odd() {
			return hash + s.of("line 7 \"sub/x.cu\"", "pragma once", "undef W1") + "\n"
		}
		return hash + s.of("pragma once", "pragma push_macro(\"NAME\")", "pragma pop_macro(\"NAME\")", "undef NAME", "line 7 \"sub/x.cu\"", "if 0", "endif", "else", "elif "+s.operator()+"(\"a.h\")", "ifdef __has_include", "error no", "warning \"a.h\"") + "\n"
	case 13:
		if !s.odd() {
			return s.of("const int y"+fmt.Sprint(s.IntN(999))+" = __LINE__;", "\v") + "\n"
		}
		return s.of("import \"a.h\";", "_Pragma(\"once\")", "auto t = __LINE__;", "const char *f = __FILE__;", "static int x"+fmt.Sprint(s.IntN(9))+";", "asm(\".include \\\"a.h\\\"\");", "\r", "\v", ";\r#include \"a.h\"") + "\n"
	}
	return "#define W" + fmt.Sprint(s.IntN(4)) + " " + fmt.Sprint(s.IntN(50)) + "\n"
}

// prelude defines the macros that lines use.
const prelude = "#define STR(x) #x\n#define ANGLE(x) <x.h>\n#define PASTE(a,b) a##b\n#define VAPASTE(a,...) a##__VA_ARGS__\n#define NAME \"b.h\"\n"

func (s *staleProgram) text() string {
	n := fmt.Sprint(s.IntN(9999))
	guard := s.of("#pragma once\n", "#pragma once\n", "#ifndef G"+n+"\n#define G"+n+"\n")
	if s.odd() {
		guard = ""
	}
	text := guard + s.repeated(4, s.line)
	if strings.HasPrefix(guard, "#ifndef") {
		text += "#endif\n"
	}
	return text
}

// change writes, removes or links one header.
func (s *staleProgram) change(t *testing.T) {
	files := []string{"inc/a.h", "inc/b.h", "inc/c", "inc/c.stdh", "inc/sub/a.h", "early/a.h", "early/b.h", "early/c", "early/c.stdh", "a.h", "inc/d.h", "sub/d.h", "include", "embed"}
	file := filepath.Join(s.dir, files[s.IntN(len(files))])
	switch s.IntN(12) {
	case 0, 1, 2:
		require.NoError(t, os.RemoveAll(file))
	case 3:
		link := filepath.Join(s.dir, s.of("inc", "early", "sub"), "link.h")
		require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
		require.NoError(t, os.RemoveAll(link))
		require.NoError(t, os.Symlink(s.of("a.h", "b.h", "../inc/a.h", "nowhere"), link))
	case 4:
		link := filepath.Join(s.dir, "inc/now")
		require.NoError(t, os.RemoveAll(link))
		require.NoError(t, os.Symlink(s.of(".", "sub", "../early", "nowhere"), link))
	default:
		s.write(t, file)
	}
}

func (s *staleProgram) write(t *testing.T, file string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.RemoveAll(file))
	require.NoError(t, os.WriteFile(file, []byte(s.text()), 0o644))
}

func (s *staleProgram) run(t *testing.T, seed uint64) {
	for _, file := range []string{"a.h", "b.h", "c", "sub/a.h", "link.h", "d.h", "now/a.h"} {
		s.write(t, filepath.Join(s.dir, "inc", file))
	}
	body := "\nextern \"C\" __global__ void k(int *p) {\n"
	for n := range 4 {
		body += fmt.Sprintf("#ifdef W%d\np[%d] = W%d;\n#endif\n", n, n, n)
	}
	source := s.of("", "", prelude, prelude, prelude+"#define HI __has_include\n") + s.repeated(5, s.line) + s.line() + body + "}\n"
	o := Options{Arch: "sm_90", CacheFolder: filepath.Join(s.dir, "cache")}
	o.Format, o.Standard, o.File = PTX, s.of("", "", "c++03", "c++11", "c++20"), filepath.Join(s.dir, "main.cu")
	o.IncludePaths = []string{filepath.Join(s.dir, "early"), filepath.Join(s.dir, "inc")}
	if s.IntN(4) == 0 {
		o.Defines = map[string]string{s.of("NAME", "HI", "INC"): s.of("\"a.h\"", "<a.h>", "__has_include", "include")}
	}
	code := func(none bool) string {
		o := o
		o.NoCache = none
		i, err := Compile(context.Background(), source, o)
		if err != nil {
			return ""
		}
		return string(i.Code)
	}
	for step := range 5 {
		cached, fresh := code(false), code(true)
		require.True(t, cached == fresh, "seed %d, step %d: stale: %t, %t; source: %q; files in %s", seed, step, cached == "", fresh == "", source, s.dir)
		for range 1 + s.IntN(2) {
			s.change(t)
		}
	}
}
