package read

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// qualified is the name in the source of a mangled one, with namespaces and template arguments
// and without parameters: "geo::scale<float,4>". Unnamed namespaces are left out.
func qualified(symbol string) string {
	name := symbol
	if strings.HasPrefix(symbol, "_Z") {
		if s, err := demangle.ToString(symbol, demangle.NoParams, demangle.NoEnclosingParams); err == nil {
			name = withoutResult(s)
		}
	}
	return normal(name)
}

var longWord = regexp.MustCompile(`\blong\b`)

// long tells whether a name in C++ has the type long, which has another size on Windows.
func long(name string) bool { return longWord.MatchString(strings.ReplaceAll(name, "long long", "")) }

// plain is the name of a type without its namespaces, which NVRTC 13 does not tell; "" of a type
// that has none.
func plain(name string) string {
	if unnamed(name) {
		return ""
	}
	if name = short(qualified(name)); unnamed(name) {
		return ""
	}
	return name
}

// short leaves out the namespaces and classes around each name: "n::Box<n::Box<int>::In>" is "Box<In>".
func short(name string) string {
	var b []byte
	starts := []int{0} // where the name that is read begins in b, and before it those around it
	for i := 0; i < len(name); i++ {
		top := len(starts) - 1
		if strings.HasPrefix(name[i:], "::") {
			b = b[:starts[top]]
			i++
			continue
		}
		b = append(b, name[i])
		switch name[i] {
		case '<', '(', '{':
			starts = append(starts, len(b))
		case '>', ')', '}':
			starts = starts[:max(top, 1)]
		case ',', ' ', '*', '&':
			starts[top] = len(b)
		}
	}
	return string(b)
}

var (
	anonymous = regexp.MustCompile(`\(anonymous namespace\)::|(_GLOBAL__N_|_INTERNAL_)\w*::|<unnamed>::`)
	suffix    = regexp.MustCompile(`\b(\d+)(u|l|ul|ll|ull)\b`)
	character = regexp.MustCompile(`'(\\?[^'\\]|\\[0-7]+|\\['\\])'`)
	space     = regexp.MustCompile(`\s*([,<>*&()])\s*`)
)

// normal writes a name as every version of NVRTC's debug information can be written.
func normal(name string) string {
	name = anonymous.ReplaceAllString(name, "")
	name = suffix.ReplaceAllString(name, "$1")
	name = character.ReplaceAllStringFunc(name, func(quoted string) string {
		r, _, _, err := strconv.UnquoteChar(quoted[1:len(quoted)-1], '\'')
		if err != nil {
			return quoted
		}
		return fmt.Sprintf("(char)%d", int8(r))
	})
	return space.ReplaceAllString(name, "$1")
}

// withoutResult cuts the result's type off, which a demangled template has before its name.
func withoutResult(name string) string {
	depth := 0
	for i := len(name) - 1; i >= 0; i-- {
		switch name[i] {
		case '>', ')', '}':
			depth++
		case '<', '(', '{':
			depth--
		case ' ':
			if depth == 0 {
				return name[i+1:]
			}
		}
	}
	return name
}

// unnamed tells the names that NVRTC gives to what has none.
func unnamed(name string) bool {
	return strings.HasPrefix(name, "__C") || strings.Contains(name, "{unnamed") || strings.HasPrefix(name, "'unnamed") || strings.Contains(name, "<unnamed")
}
