package doc

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seeds is a checklist: what is said of streams elsewhere, and where a reader
// finds it here, or why it no longer holds.
//
//go:embed seeds.txt
var seeds string

func TestSeeds(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	rows, gone := 0, 0
	for i, line := range strings.Split(seeds, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rows++
		f := strings.Split(line, "\t")
		if len(f) == 3 && f[1] == "-" {
			gone++
			assert.NotEmptyf(t, f[2], "seeds.txt:%d: no reason", i+1)
			continue
		}
		if !assert.Lenf(t, f, 2, "seeds.txt:%d: want a statement and where it stands", i+1) {
			continue
		}
		for name := range strings.SplitSeq(f[1], ",") {
			assert.Containsf(t, all, strings.TrimSpace(name), "seeds.txt:%d: no entry", i+1)
		}
	}
	require.NotZero(t, rows)
	t.Logf("%d statements, %d of them no longer hold", rows, gone)
}
