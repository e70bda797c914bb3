package compile

import (
	"errors"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/stretchr/testify/assert"
)

func TestParseLog(t *testing.T) {
	for name, test := range map[string]struct {
		log  []string
		want []*Diagnostic
	}{
		"nothing": {nil, nil},
		"error with its place": {
			[]string{`x.cu(2): error: identifier "v" is undefined`, "  __global__ void f(){ int x=A; \tv(x); ", "                                \t^", "", `1 error detected in the compilation of "x.cu".`},
			[]*Diagnostic{{"x.cu", 2, 32, "error", "", `identifier "v" is undefined`}},
		},
		"catastrophic error": {
			[]string{`sub/a.h(1): catastrophic error: cannot open source file "b.h"`, `  #include "b.h"`, "                ^", "", `1 catastrophic error detected in the compilation of "x.cu".`, "Compilation terminated."},
			[]*Diagnostic{{"sub/a.h", 1, 15, "error", "", `cannot open source file "b.h"`}},
		},
		"warning with a number": {
			[]string{`x.cu(2): warning #177-D: variable "u" was declared but never referenced`, "  int u;", "      ^", "", `Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"`, ""},
			[]*Diagnostic{{"x.cu", 2, 5, "warning", "177-D", `variable "u" was declared but never referenced`}},
		},
		"where a template was instantiated": {
			[]string{"x.cu(1): error: expression must have pointer-to-class type", "  p->y=3;", "  ^", `          detected during instantiation of "void k(T *) [with T=float]" `, "", "x.cu(7): error: other"},
			[]*Diagnostic{
				{"x.cu", 1, 1, "error", "", "expression must have pointer-to-class type\ndetected during instantiation of \"void k(T *) [with T=float]\""},
				{"x.cu", 7, 0, "error", "", "other"},
			},
		},
		"parentheses and colons in the file": {
			[]string{"C:/a (1)/x.cu(3): error: no"},
			[]*Diagnostic{{"C:/a (1)/x.cu", 3, 0, "error", "", "no"}},
		},
		"options": {
			[]string{"nvrtc: error: unrecognized option --nonsense found"},
			[]*Diagnostic{{"", 0, 0, "error", "", "unrecognized option --nonsense found"}},
		},
		"machine code": {
			[]string{"ptxas application ptx input, line 21; error   : Unknown modifier '.instr'", "ptxas fatal   : Ptx assembly aborted due to errors", "ptxas error   : Entry function '_Z1gPi' uses too much shared data"},
			[]*Diagnostic{
				{"application ptx input", 21, 0, "error", "", "Unknown modifier '.instr'"},
				{"", 0, 0, "error", "", "Ptx assembly aborted due to errors"},
				{"", 0, 0, "error", "", "Entry function '_Z1gPi' uses too much shared data"},
			},
		},
		"resources": {
			[]string{"ptxas info    : Function properties for _Z1gv", "ptxas         .     0 bytes stack frame, 0 bytes spill stores"},
			[]*Diagnostic{{"", 0, 0, "info", "", "Function properties for _Z1gv\n0 bytes stack frame, 0 bytes spill stores"}},
		},
		"linker": {
			[]string{"error   : Undefined reference to 'half_of' in 'caller'", "ERROR NVJITLINK_ERROR_PTX_COMPILE: JIT the PTX (bad.ptx)"},
			[]*Diagnostic{
				{"", 0, 0, "error", "", "Undefined reference to 'half_of' in 'caller'"},
				{"", 0, 0, "error", "", "JIT the PTX (bad.ptx)"},
			},
		},
		"remark": {
			[]string{"x.cu(2): remark #1234: kernel k is small"},
			[]*Diagnostic{{"x.cu", 2, 0, "remark", "1234", "kernel k is small"}},
		},
		"huge line number": {
			[]string{"x(99999999999999999999): error: e"},
			[]*Diagnostic{{"x", 9223372036854775807, 0, "error", "", "e"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, parseLog(strings.Join(test.log, "\n")))
		})
	}
}

// TestSeverities: each message is an error or one of the others, and only errors make a call fail.
func TestSeverities(t *testing.T) {
	all := parseLog("a(1): error: 1\na(2): catastrophic error: 2\na(3): internal error: 3\na(4): warning: 4\na(5): remark: 5\nptxas info : 6\nptxas fatal : 7\nWARNING X: 8\nERROR Y: 9\n")
	messages := func(all []*Diagnostic) (texts string) {
		for _, d := range all {
			texts += d.Message + d.Severity[:1]
		}
		return texts
	}
	assert.Equal(t, "1e2e3e7e9e", messages(failures(all)))
	assert.Equal(t, "4w5r6i8w", messages(warnings(all)))
}

// TestErrorOfAnotherCall: the cause of a context.Context stays as it is.
func TestErrorOfAnotherCall(t *testing.T) {
	other := &Error{Op: "Load", Err: errors.New("first")}
	err := fail("Compile", other)
	assert.ErrorIs(t, err, other)
	assert.NotSame(t, other, err)
	assert.Equal(t, "Load", other.Op)
}

func TestError(t *testing.T) {
	one := &Diagnostic{"x.cu", 2, 9, "error", "", "no such thing"}
	for name, test := range map[string]struct {
		err  *Error
		want string
	}{
		"one":       {&Error{Op: "Load", Err: nvrtc.NVRTC_ERROR_COMPILATION, Diagnostics: []*Diagnostic{one}}, "cuda: compile.Load: x.cu:2:9: error: no such thing"},
		"several":   {&Error{Op: "Load", Err: nvrtc.NVRTC_ERROR_COMPILATION, Diagnostics: []*Diagnostic{one, {Severity: "error", Message: "and"}}}, "cuda: compile.Load: 2 errors:\nx.cu:2:9: error: no such thing\nerror: and"},
		"cause":     {&Error{Op: "Link", Err: errors.New("cuda: broken"), Log: "said\n"}, "cuda: compile.Link: broken: said"},
		"with hint": {&Error{Op: "Link", Err: errors.New("broken"), Hint: "mend it"}, "cuda: compile.Link: broken\nmend it"},
	} {
		t.Run(name, func(t *testing.T) { assert.EqualError(t, test.err, test.want) })
	}
	var err error = &Error{Op: "Load", Err: nvrtc.NVRTC_ERROR_COMPILATION, Diagnostics: []*Diagnostic{one}}
	var d *Diagnostic
	assert.ErrorAs(t, err, &d)
	assert.Same(t, one, d)
	assert.ErrorIs(t, err, nvrtc.NVRTC_ERROR_COMPILATION)
}

func FuzzParseLog(f *testing.F) {
	f.Add("x.cu(2): error: e\n  a\n  ^\n")
	f.Add("ptxas info : x\nptxas . y")
	f.Add("x(1): warning #1-D: w\r\n\x00")
	f.Fuzz(func(t *testing.T, log string) {
		for _, d := range parseLog(log) {
			assert.Contains(t, []string{"error", "warning", "remark", "info"}, d.Severity)
			assert.GreaterOrEqual(t, d.Line, 0)
			assert.GreaterOrEqual(t, d.Column, 0)
			assert.NotEmpty(t, d.Error())
		}
	})
}
