package doc

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNeeded(t *testing.T) {
	for _, tt := range []struct{ name, comment, told, want string }{
		{"nothing", "/** Retrieves. */", "gives.", ""},
		{"a generation", "/** For Ampere &tm; or newer fully supported devices. */", "gives.", "For GPUs since Ampere."},
		{"a generation that every driver needs", "/** For Fermi &tm; or newer fully supported devices. */", "gives.", ""},
		{"a generation with its chips", "/** For Blackwell &tm GB20x; or newer */", "gives.", "For GPUs since Blackwell."},
		{"all", "/** For Hopper &tm; or newer.\n * Supported on Linux only.\n * Requires root/admin permissions. */", "gives.", "For GPUs since Hopper. Only on Linux. Needs root."},
		{"a system said the other way", "/** Supported only for Linux */", "gives.", "Only on Linux."},
		{"a kind of driver", "/** Supported on Linux, Windows TCC. */", "gives.", "Only on Linux, and on Windows with TCC."},
		{"told already", "/** For Hopper &tm; or newer.\n * For windows only.\n * Requires privileged user. */", "gives. Since Hopper, on Windows; needs root.", ""},
		{"told in part", "/** For Hopper &tm; or newer.\n * Supported on Linux only. */", "gives. Since Hopper.", "Only on Linux."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, needed(tt.comment, &entry{summary: tt.told}))
		})
	}
}

// TestNeedsCommitted: the comments in package nvml tell which GPUs and systems the header limits a
// function to, and where it needs root.
func TestNeedsCommitted(t *testing.T) {
	a := complete(t, "nvml", "13.5")
	told := comments(t, filepath.Join("..", "..", "cuda", "generated", "nvml"))
	main := mainNames(a)
	limits := regexp.MustCompile(`(Pascal|Volta|Turing|Ampere|Ada|Hopper|Blackwell)[^.\n]* or newer fully|(Linux|Windows) only|only for (Linux)|Windows (TCC)\.|Requires (root|privileged)`)
	listed, missing := 0, 0
	for _, f := range a.Funcs {
		text := wholeComment(a, f, main, told)
		for _, m := range limits.FindAllStringSubmatch(f.Comment, -1) {
			listed++
			need := strings.Join(m[1:], "")
			if need == "root" || need == "privileged" {
				need = `\broot\b|privilege`
			}
			if !regexp.MustCompile(need).MatchString(text) {
				missing++
				t.Errorf("%s: the header says %q, the comment does not", f.Go, m[0])
			}
		}
	}
	assert.Positive(t, listed)
	t.Logf("%d limits in the header, %d in the comments", listed, listed-missing)
}
