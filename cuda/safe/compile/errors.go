package compile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Diagnostic is one message of a compiler or linker. It implements error, whatever its
// Severity.
type Diagnostic struct {
	File     string // as in the source's #include or Options.File; "" if the message has no place
	Line     int    // from 1; 0 if the message has no place
	Column   int    // from 1, in characters; 0 if it is not known
	Severity string // "error", "warning", "remark" or "info"
	Number   string // the compiler's number, such as "177-D", for -diag-suppress; "" for most
	Message  string // may have several lines
}

// Error returns the message with its place, as compilers print it.
func (d *Diagnostic) Error() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.File + ":")
		for _, n := range []int{d.Line, d.Column} {
			if n > 0 {
				fmt.Fprintf(&b, "%d:", n)
			}
		}
		b.WriteByte(' ')
	}
	return b.String() + d.Severity + ": " + d.Message
}

// Error is the type of the errors that functions of this package return. [errors.As] finds the
// first [*Diagnostic] in it.
type Error struct {
	Op          string        // the function, such as "Load"
	Err         error         // the cause: an nvrtc.NvrtcResult, an nvjitlink.NvJitLinkResult, or another error
	Diagnostics []*Diagnostic // the compiler's errors, in its order; nil if it has not failed
	Log         string        // all that the compiler said, with warnings and the lines of source
	Hint        string        // what to do, "" if that is not known
}

// Error returns the compiler's errors, one a line, or the cause if there are none.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("cuda: compile." + e.Op + ": ")
	switch {
	case len(e.Diagnostics) == 1:
		b.WriteString(e.Diagnostics[0].Error())
	case len(e.Diagnostics) > 1:
		fmt.Fprintf(&b, "%d errors:", len(e.Diagnostics))
		for _, d := range e.Diagnostics {
			b.WriteString("\n" + d.Error())
		}
	default:
		b.WriteString(strings.TrimPrefix(fmt.Sprint(e.Err), "cuda: "))
		if log := strings.TrimSpace(e.Log); log != "" {
			b.WriteString(": " + log)
		}
	}
	if e.Hint != "" {
		b.WriteString("\n" + e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause and the compiler's errors.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Err != nil { // errors.Is calls the methods of each
		all = append(all, e.Err)
	}
	for _, d := range e.Diagnostics {
		all = append(all, d)
	}
	return all
}

var (
	// x.cu(3): warning #177-D: variable "v" was declared but never referenced
	placed = regexp.MustCompile(`^(.+)\((\d+)\): ((?:catastrophic |internal )?error|warning|remark)(?: #([0-9]+(?:-D)?))?: (.*)$`)
	// ptxas application ptx input, line 21; error   : Unknown modifier '.instr'
	inPTX = regexp.MustCompile(`^ptxas ([^,]+), line (\d+); (error|fatal|warning|info) *: (.*)$`)
	// nvrtc: error: unrecognized option --nonsense found
	unplaced = regexp.MustCompile(`^(?:[A-Za-z]\w*:? ?)??(fatal|error|warning|info|ERROR [^:]{0,60}|WARNING [^:]{0,60})\s*: (.*)$`)
	// ptxas         .     0 bytes stack frame
	continued = regexp.MustCompile(`^ptxas +\. +(.*)$`)
	// 2 errors detected in the compilation of "x.cu".
	summary = regexp.MustCompile(`^(\d+ (catastrophic )?errors? detected in|Compilation terminated|Remark: The warnings can be suppressed)`)
)

// parseLog takes a compiler's log apart. It keeps every line that is no line of source.
func parseLog(log string) (all []*Diagnostic) {
	lines := strings.Split(strings.ReplaceAll(log, "\r", ""), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " \t\x00")
		if d := diagnostic(line); d != nil {
			all = append(all, d)
			if d.Line > 0 && i+2 < len(lines) {
				if d.Column = caret(lines[i+2]); d.Column > 0 {
					i += 2 // the source, and where in it
				}
			}
			continue
		}
		text := strings.TrimSpace(line)
		if m := continued.FindStringSubmatch(line); m != nil {
			text = m[1]
		}
		if text != "" && len(all) > 0 && !summary.MatchString(text) {
			last := all[len(all)-1]
			last.Message += "\n" + text
		}
	}
	return all
}

// diagnostic returns the message that begins with line, or nil.
func diagnostic(line string) *Diagnostic {
	if m := placed.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[2])
		return &Diagnostic{File: m[1], Line: n, Severity: severity(m[3]), Number: m[4], Message: m[5]}
	}
	if m := inPTX.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[2])
		return &Diagnostic{File: m[1], Line: n, Severity: severity(m[3]), Message: m[4]}
	}
	if m := unplaced.FindStringSubmatch(line); m != nil {
		return &Diagnostic{Severity: severity(m[1]), Message: m[2]}
	}
	return nil
}

func severity(word string) string {
	switch word = strings.ToLower(word); {
	case strings.HasPrefix(word, "warning"):
		return "warning"
	case word == "remark", word == "info":
		return word
	}
	return "error"
}

// caret returns the column to which a line that holds only a ^ points, or 0. The lines of source
// above it are indented by two.
func caret(line string) int {
	before, after, found := strings.Cut(line, "^")
	if !found || strings.TrimSpace(before+after) != "" || len(before) < 2 {
		return 0
	}
	return len(before) - 1
}

// failures are the errors of a log.
func failures(all []*Diagnostic) (failed []*Diagnostic) {
	for _, d := range all {
		if d.Severity == "error" {
			failed = append(failed, d)
		}
	}
	return failed
}

// warnings are the messages of a log that are no errors.
func warnings(all []*Diagnostic) (other []*Diagnostic) {
	for _, d := range all {
		if d.Severity != "error" {
			other = append(other, d)
		}
	}
	return other
}
