package compile

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestScan(t *testing.T) {
	quoted, angled := []include{{"a.h", true}}, []include{{"a.h", false}}
	for name, test := range map[string]struct {
		text   string
		want   []include
		unsure bool
	}{
		"nothing":                  {"__global__ void k() {}", nil, false},
		"quoted":                   {`#include "a.h"`, quoted, false},
		"angled":                   {"#include <a.h>", angled, false},
		"blanks":                   {" # \t\v\finclude\t\"a.h\"", quoted, false},
		"no blank":                 {`#include"a.h"`, quoted, false},
		"digraph":                  {`%:include "a.h"`, quoted, false},
		"import":                   {`#import "a.h"`, quoted, false},
		"next":                     {"#include_next <a.h>", angled, false},
		"embed":                    {"#embed <a.h> limit(3)", angled, false},
		"comment before the name":  {"#include /* of\n lines */ /**/\"a.h\"", quoted, false},
		"within a comment":         {`// see #include "a.h"`, quoted, false},
		"lines joined":             {"#inc\\\nlude \\\r\n\"a.h\"", quoted, false},
		"other words":              {"// it includes, important: embedded; include a.h, import it", nil, false},
		"left of a hash":           {"a#included", nil, false},
		"operator":                 {`#if __has_include("a.h")`, quoted, false},
		"operator with blanks":     {"#if __has_include /**/ ( <a.h> )", angled, false},
		"operator next":            {"#if __has_include_next(<a.h>)", angled, false},
		"operator embed":           {"#if __has_embed(<a.h> if_empty(x))", angled, false},
		"defined":                  {"#if defined(__has_include) && __has_include(<a.h>)", angled, false},
		"defined without brackets": {"#if defined __has_include\n#ifdef __has_include\n#ifndef  __has_embed\n", nil, false},
		"module":                   {"import <a.h>;", angled, false},
		"exported module":          {"x\n export import \"a.h\";", quoted, false},

		"macro":                         {"#include NAME", nil, true},
		"macro, embed":                  {"#embed NAME", nil, true},
		"macro in the operator":         {"#if __has_include(NAME)", nil, true},
		"alias":                         {"#define HI __has_include", nil, true},
		"alias of next":                 {"#define HI __has_include_next", nil, true},
		"alias of embed":                {"#define HI __has_embed", nil, true},
		"pasted":                        {"F(__has_, include)(<a.h>)", nil, false}, // depends says so
		"pasted to":                     {"#define F(a) a##include", nil, true},
		"comment before the word":       {"# /* x */ include \"a.h\"", quoted, true},
		"comment after the word":        {"#include // x", nil, true},
		"many comments":                 {"#include /**//**//**//**//**/ \"a.h\"", nil, true},
		"comment without an end":        {"#include /* \"a.h\"", nil, true},
		"no end of the name":            {"#include \"a.h\n\"", nil, true},
		"no name":                       {`#include ""`, nil, true},
		"trigraph of a hash":            {"??=include \"a.h\"", nil, true},
		"trigraph of a backslash":       {"#inc??/\nlude \"a.h\"", nil, true},
		"carriage return":               {"#\rinclude \"a.h\"", quoted, true},
		"carriage return for a newline": {"x;\r#include \"a.h\"\r", quoted, true},
		"blank after a backslash":       {"#inc\\ \nlude \"a.h\"", quoted, true},
		"two backslashes":               {"#inc\\\\\n\nlude \"a.h\"", nil, true},
		"module by a macro":             {"\nimport NAME;", nil, true},
		"long name":                     {`#include "` + strings.Repeat("a", longestName) + `"`, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			all, unsure := scan(test.text)
			assert.Equal(t, test.want, all)
			assert.Equal(t, test.unsure, unsure)
		})
	}
}

func TestDepends(t *testing.T) {
	for text, want := range map[string]bool{
		"int _x = __x + x_ + has_include;":         false,
		"__global__ __half __host__ __device__ f":  false,
		"#if __has_include(<a>)":                   false,
		"auto t = __TIME__;":                       true,
		"__DATE__":                                 true,
		"__TIMESTAMP__":                            true,
		"__TI\\\nME__":                             true,
		"C(__TI, ME__)":                            true,
		"C(__has_, include)(<a>)":                  true,
		"C(__has_inc, lude)(<a>)":                  true,
		"C(_, _has_include)(<a>)":                  true,
		"#if _CCCL_HAS_INCLUDE(<a>)":               true,
		"__has_include_":                           true,
		"1__has_":                                  false,
		"__has_builtin __has_cpp_attribute __DATE": true,
	} {
		t.Run(text, func(t *testing.T) { assert.Equal(t, want, depends(text)) })
	}
}

// TestScanLinear: texts of this size take milliseconds. If the time grew with the square of the
// size, they would take hours.
func TestScanLinear(t *testing.T) {
	for _, piece := range []string{
		"#include /*", "#include /**/", "#include /**//*", "#include <", "#include \"", "#include ", "__has_include(", "__has_include /*",
		"*/ include ", "import ", "\\", "\\ ", "\\\n", "\r", "_", "_ ", "??", "#", "%:include/*", "embed<", "include*//*",
	} {
		text := strings.Repeat(piece, 2<<20/len(piece))
		scan(text)
		depends(text)
	}
}

func FuzzScan(f *testing.F) {
	f.Add("#include \"a.h\"\n#if __has_include /*x*/ (<b>)\n")
	f.Add("#inc\\\r\nlude <a> /* \r ??= _")
	f.Fuzz(func(t *testing.T, text string) {
		all, unsure := scan(text)
		for _, i := range all {
			assert.NotEmpty(t, i.name)
			assert.NotContains(t, i.name, "\n")
		}
		// What is around a text hides nothing in it.
		more, _ := scan("\n" + text + "\n")
		assert.GreaterOrEqual(t, len(more), len(all))
		// Lines that are joined beforehand name the same.
		lines, sure := joined(text)
		if again, _ := scan(lines); !unsure && !sure {
			assert.Subset(t, append(again, include{}), append(all, include{}))
		}
		depends(text)
	})
}
