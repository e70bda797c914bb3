package doc

import (
	_ "embed"
	"strings"
	"sync"
)

// safeTable says what package safe has in place of a raw function.
//
//go:embed safe.txt
var safeTable string

// safeURL is where package safe can be read.
const safeURL = "https://pkg.go.dev/github.com/cudabind/cudabind/cuda/safe"

// safeNames are the names of package safe, by the C name of an entry.
var safeNames = sync.OnceValue(func() map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(safeTable) {
		line = strings.TrimSpace(line)
		if key, names, ok := strings.Cut(line, " "); ok && key != "#" {
			m[key] = strings.Split(names, ", ")
		}
	}
	return m
})

// safe names the counterparts in package safe of what an entry is about. Doc
// links would need an import, so these are links by address.
func (c *comment) safe(e *entry) {
	for _, key := range e.keys {
		var links []string
		for _, name := range safeNames()[key] {
			links = append(links, c.linkTo("safe."+name, safeURL+"#"+name))
		}
		if len(links) > 0 {
			c.text("Safe counterpart: " + strings.Join(links, ", ") + ".")
			return
		}
	}
}
