package model

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// sinceTable says for every symbol of every pinned version which CUDA version
// introduced it. tools/headers writes it from the headers themselves.
//
//go:embed since.txt
var sinceTable string

var since = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(sinceTable) {
		if f := strings.Fields(line); len(f) == 3 && f[0] != "#" {
			m[f[0]+" "+f[1]] = f[2]
		}
	}
	return m
})

// Since is the CUDA version that introduced a symbol, "<=11.8" where it is
// older than the oldest pinned version and nothing says more, "" where it is
// in no pinned version.
func Since(api, symbol string) string { return since()[api+" "+symbol] }

// SinceText spells what Since returns for a reader.
func SinceText(s string) string {
	if v, ok := strings.CutPrefix(s, "<="); ok {
		return "CUDA " + v + " or earlier"
	}
	return "CUDA " + s
}

// SinceHead begins the table.
const SinceHead = "# Which CUDA version introduced each symbol. Written by tools/headers; do not edit.\n"

// Introduced tells in which version each symbol of apis came, oldest version
// first, nil for one that lacks the library. For the symbols of the oldest the driver's
// cudaTypedefs.h knows more.
func Introduced(apis []*API) string {
	var b strings.Builder
	seen := map[string]bool{}
	for i, a := range apis {
		if a == nil || a.Row.Apart {
			continue
		}
		for _, f := range a.Funcs {
			if seen[f.Symbol] {
				continue
			}
			seen[f.Symbol] = true
			v := a.Version
			if i == 0 {
				v = "<=" + a.Version
				if n := pfnVersion(a, f); n > 0 {
					v = VersionString(n)
				}
			}
			fmt.Fprintf(&b, "%s %s %s\n", a.Row.API, f.Symbol, v)
		}
	}
	return b.String()
}
