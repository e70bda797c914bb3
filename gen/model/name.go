package model

import (
	"fmt"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// GoName is the Go name of a C name: the same with its first letter in upper
// case. A name that cannot be exported that way is prefixed with X.
func GoName(c string) string {
	c = identifier(c)
	r, size := utf8.DecodeRuneInString(c)
	if !unicode.IsLetter(r) {
		return "X" + c
	}
	return string(unicode.ToUpper(r)) + c[size:]
}

// identifier is a C name with _ for the $ that compilers of C take.
func identifier(c string) string { return strings.ReplaceAll(c, "$", "_") }

// inBody are the names that the body of an emitted function uses, beside Go's
// own types.
var inBody = []string{"args", "call", "callStatus", "err", "goString", "nil", "ret", "status", "unsafe"}

// ownNames are the names that every emitted package declares on its own account, or imports.
var ownNames = []string{"C", "Find", "Functions", "Library", "LibraryError", "Missing", "Open", "Status", "SymbolError"}

// paramName is the Go name of a parameter. Names that mean something else in
// the function's body get an underscore.
func paramName(c string, i int) string {
	c = identifier(c)
	_, isType := types.Universe.Lookup(c).(*types.TypeName)
	switch {
	case c == "", c == "_":
		return "p" + strconv.Itoa(i)
	case isType, token.IsKeyword(c), slices.Contains(inBody, c), padding.MatchString(c):
		return c + "_"
	}
	return c
}

// padding are the names of what lies between arguments.
var padding = regexp.MustCompile(`^_\d+$`)

// importName is the name by which an emitted file calls the package at a path.
func importName(path string) string {
	name := strings.ToLower(path[strings.LastIndexByte(path, '/')+1:])
	name = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, name)
	return strings.TrimLeft(name, "0123456789")
}

// basics maps C's numbers to Go's. Plain char is a byte: CUDA uses it for text
// and raw bytes alone.
var basics = map[string]string{
	"char": "byte", "signed char": "int8", "unsigned char": "uint8",
	"short": "int16", "unsigned short": "uint16",
	"int": "int32", "unsigned": "uint32", "unsigned int": "uint32",
	"long": "int64", "unsigned long": "uint64",
	"long long": "int64", "unsigned long long": "uint64",
	"float": "float32", "double": "float64",
	"size_t": "uint64", "uint8_t": "uint8", "uint16_t": "uint16", "uint32_t": "uint32", "uint64_t": "uint64",
	"int8_t": "int8", "int16_t": "int16", "int32_t": "int32", "int64_t": "int64",
	"cuuint32_t": "uint32", "cuuint64_t": "uint64",
	"wchar_t": "int32", "_Bool": "bool", "__half": "uint16", "__nv_bfloat16": "uint16", "__float16": "uint16",
	"GLenum": "uint32", "GLuint": "uint32", "EGLint": "int32",
	"VdpDevice": "uint32", "VdpOutputSurface": "uint32", "VdpVideoSurface": "uint32",
	"cuComplex": "complex64", "cuFloatComplex": "complex64", "cuDoubleComplex": "complex128",
}

// BasicName is the Go name of a number type of C.
func BasicName(c string) (string, bool) {
	g, ok := basics[c]
	return g, ok
}

// BasicSize is the size of a number type of Go.
func BasicSize(g string) int64 {
	switch g {
	case "bool", "byte":
		return 1
	}
	bits, _ := strconv.ParseInt(strings.TrimLeft(g, "abcdefghijklmnopqrstuvwxyz"), 10, 64)
	return bits / 8
}

// Base splits a symbol such as cuMemcpyHtoD_v2_ptds into cuMemcpyHtoD, 2 and
// ptds. A symbol without a number is version 1. cublasSgemm_v2_64 is version 2 of
// cublasSgemm_64.
func Base(symbol string) (base string, version int, thread string) {
	base = symbol
	for _, s := range []string{"_ptsz", "_ptds"} {
		if b, ok := strings.CutSuffix(base, s); ok {
			base, thread = b, s[1:]
		}
	}
	plain, wide := base, ""
	if b, ok := strings.CutSuffix(base, "_64"); ok {
		plain, wide = b, "_64"
	}
	if i := strings.LastIndex(plain, "_v"); i > 0 {
		if n, err := strconv.Atoi(plain[i+2:]); err == nil && n < 1000 {
			return plain[:i] + wide, n, thread
		}
	}
	return base, 1, thread
}

func join(typ, name string) string {
	if name == "" {
		return typ
	}
	if strings.HasPrefix(name, "*") {
		return typ + " " + strings.TrimSuffix(name, " ")
	}
	return typ + " " + name
}

func params(ps []*Param, named bool) string {
	if len(ps) == 0 {
		return "void"
	}
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case named && p.Function != "":
			b.WriteString(p.Function)
		case named:
			b.WriteString(p.Type.CDecl(p.C))
		default:
			b.WriteString(p.Type.CDecl(""))
		}
	}
	return b.String()
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// names collects every identifier of a package and refuses a second use.
type names map[string]string

func (n names) add(goName, c string) error {
	if other, taken := n[goName]; taken {
		return fmt.Errorf("%s and %s both become %s in Go: add a rename quirk for one of them", other, c, goName)
	}
	n[goName] = c
	return nil
}

// VersionString spells CUDA_VERSION: 13050 is 13.5.
func VersionString(n int) string { return fmt.Sprintf("%d.%d", n/1000, n%1000/10) }
