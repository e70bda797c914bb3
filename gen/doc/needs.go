package doc

import (
	"regexp"
	"strings"
)

// needs are words of headers about what a function needs, with ours for them.
// Drivers of CUDA 11.8 and newer know no GPU before Maxwell, which is no limit.
var needs = []struct {
	header *regexp.Regexp
	ours   string         // $1 is what the header names
	told   *regexp.Regexp // what an entry says that tells so already; nil: what the header names
}{
	{regexp.MustCompile(`\b(Pascal|Volta|Turing|Ampere|Ada|Hopper|Blackwell)(?: &tm;?)?(?: GB20x;)? or newer`), "For GPUs since $1.", nil},
	{regexp.MustCompile(`(?i)\b(Linux|Windows) only|only (?:on|for) (Linux)`), "Only on $1$2.", nil},
	{regexp.MustCompile(`\bLinux, Windows (TCC)\b`), "Only on Linux, and on Windows with TCC.", nil},
	{regexp.MustCompile(`(?i)\brequires (root|privileged)\b`), "Needs root.", regexp.MustCompile(`\broot\b|privilege`)},
}

// needed says what a function needs by the header's comment, beside what an
// entry tells.
func needed(comment string, e *entry) string {
	told := strings.Join(e.all(), " ")
	var out []string
	for _, n := range needs {
		m := n.header.FindStringSubmatchIndex(comment)
		if m == nil {
			continue
		}
		named := string(n.header.ExpandString(nil, "$1$2", comment, m))
		if n.told != nil && n.told.MatchString(told) || n.told == nil && strings.Contains(strings.ToLower(told), strings.ToLower(named)) {
			continue
		}
		out = append(out, string(n.header.ExpandString(nil, n.ours, comment, m)))
	}
	return strings.Join(out, " ")
}
