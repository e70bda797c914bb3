// How lines of /proc/self/maps are understood.

package safe

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseRegion(t *testing.T) {
	for _, test := range []struct {
		name, line string
		want       region
	}{
		{"a file", "7f00-7f80 r--p 0001f000 fe:1a 247026                     /usr/bin/cat\n", region{0x7f00, 0x7f80, "r--p", "254:26", "/usr/bin/cat"}},
		{"a name with spaces", "7f00-7f80 rw-s 00000000 00:2e 9 /my models/a b (deleted)\n", region{0x7f00, 0x7f80, "rw-s", "0:46", "/my models/a b (deleted)"}},
		{"no file", "c000000000-c000400000 rw-p 00000000 00:00 0 \n", region{0xc000000000, 0xc000400000, "rw-p", "0:0", ""}},
		{"a name for no file", "7ff0-7fff rw-p 00000000 00:00 0                          [stack]\n", region{0x7ff0, 0x7fff, "rw-p", "0:0", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseRegion(test.line)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
	for _, line := range []string{"", "7f00-7f80", "7f00 r--p 0 fe:00 1", "x-y r--p 0 fe:00 1", "7f00-7f80 r--p 0 fe 1", "7f00-7f80 r- 0 fe:00 1"} {
		_, err := parseRegion(line)
		assert.ErrorContains(t, err, "/proc/self/maps", line)
	}
}

// TestFileSystem: the kernel's own files in memory are in no list of mounts.
func TestFileSystem(t *testing.T) {
	for file, want := range map[string]string{"/memfd:weights (deleted)": "", "/SYSV00000000 (deleted)": "", "/dev/zero (deleted)": "", "/a/file": "unknown"} {
		kind, err := (&region{device: "4095:1", file: file}).fileSystem()
		require.NoError(t, err)
		assert.Equal(t, want, kind, file)
	}
}

func FuzzParseRegion(f *testing.F) {
	f.Add("7f00-7f80 r--p 0001f000 fe:1a 247026                     /usr/bin/cat\n")
	f.Fuzz(func(t *testing.T, line string) {
		if m, err := parseRegion(line); err == nil {
			assert.Len(t, m.perms, 4)
			assert.True(t, m.file == "" || strings.Contains(strings.Join(strings.Fields(line), " "), m.file))
		}
	})
}
