package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inC is for C compilers alone: the parser does not say its version in words.
const inC = "#ifdef __VERSION__\n"

// TestProve: the generator compares the layouts of a user's header with those of a C compiler,
// and says what it has compared.
func TestProve(t *testing.T) {
	const bits = "struct smallBits { char c; int n : 3; union { _Bool on : 1; short s; }; };\n"
	for _, tt := range []struct {
		name, header, env string
		args              []string
		compiler          string // "" for none
		notice, err       string
	}{
		{"agrees", bits, "gcc", nil, "gcc", "gen: all 6 sizes, alignments and places of members are those that gcc has for linux_", ""},
		{"members that macros name", bits + "struct smallMore { int defined; };\n#define c (*smallChar())\n#define n smallOf.n\n#define smallBits smallBits\n", "gcc", nil, "gcc", "gen: all 9 sizes, alignments and places of members are those that gcc has for linux_", ""},
		{"arguments of the compiler", bits, "gcc -g", nil, "gcc", "that gcc has for linux_", ""},
		{"for Windows", bits, "", []string{"-cc", "x86_64-w64-mingw32-gcc"}, "x86_64-w64-mingw32-gcc", "that x86_64-w64-mingw32-gcc has for windows_amd64\n", ""},
		{"long on Windows", bits + "struct smallLong { long n; };\n", "", []string{"-cc", "x86_64-w64-mingw32-gcc"}, "x86_64-w64-mingw32-gcc", "gen: all 6 sizes, alignments and places of members are those that x86_64-w64-mingw32-gcc has for windows_amd64\n", ""},
		{"for arm64", bits, "", []string{"-cc", "aarch64-linux-gnu-gcc"}, "aarch64-linux-gnu-gcc", "that aarch64-linux-gnu-gcc has for linux_arm64\n", ""},
		{"for a system without calls", bits, "gcc -U__linux__", nil, "gcc", "gen: no layout was compared with C: gcc: it compiles for a system on which the package cannot call\n", ""},
		{"no records", "#define SMALL_A 1\n", "gcc", nil, "gcc", "", ""},
		{"no compiler", bits, "no-such-compiler", nil, "", "gen: no layout was compared with C: there is no C compiler no-such-compiler; -cc names another one\n", ""},
		{"no such compiler", bits, "gcc", []string{"-cc", "no-such-compiler"}, "", "", `-cc no-such-compiler: exec: "no-such-compiler": executable file not found`},
		{"none", bits, "gcc", []string{"-cc", "none"}, "gcc", "", ""},
		{"not C for the compiler", inC + "#error only for others\n#endif\n" + bits, "gcc", nil, "gcc", "small.h:2:2: error: #error only for others\n", ""},
		{"not C for the compiler that is asked for", inC + "#error only for others\n#endif\n" + bits, "", []string{"-cc", "gcc"}, "gcc", "", "-cc gcc: exit status 1: "},
		{"another size", "struct small { int n;\n" + inC + "int more;\n#endif\n};\n", "gcc", nil, "gcc", "", "out in another way: the size of struct small: 8 bytes in C, 4 here"},
		{"another bit", "struct small {\n" + inC + "int more : 2;\n#endif\nint n : 3; };\n", "gcc", nil, "gcc", "", "the place of struct small.n: 3 bits from bit 2 on in C, 3 from bit 0 on here"},
		{"another place", "struct small {\n" + inC + "char a[4], b[4];\n#else\nchar b[4], a[4];\n#endif\n};\n", "gcc", nil, "gcc", "", "the place of struct small.b: 4 bytes in C, 0 here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.compiler); tt.compiler != "" && err != nil {
				t.Skip("no C compiler: ", err)
			}
			t.Setenv("CC", tt.env)
			dir := folder(t, map[string]string{"small.h": tt.header, "small.json": smallRow})
			out := filepath.Join(dir, "out")
			var notice bytes.Buffer
			args := []string{"-row", filepath.Join(dir, "small.json"), "-headers", dir, "-out", out, "-package", "small", "-import", "example.com/small"}
			err := run(append(args, tt.args...), &notice)
			if tt.err != "" {
				assert.ErrorContains(t, err, tt.err)
				assert.NoDirExists(t, out, "nothing is written")
				return
			}
			require.NoError(t, err)
			if tt.notice == "" {
				assert.Empty(t, notice.String())
			}
			assert.Contains(t, notice.String(), tt.notice)
		})
	}
}
