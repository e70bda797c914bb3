package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fence  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	link   = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	goRun  = regexp.MustCompile(`go run (?:github\.com/cudabind/cudabind/|\./)([^\s@]+)(?:@latest)?(.*)`)
	aFlag  = regexp.MustCompile(` -([a-z]+)`)
	target = regexp.MustCompile(`\bmake ([a-z0-9-]+)`)
)

// fenceKinds are what the fences of a text say they hold.
func fenceKinds(text string) []string {
	var kinds []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		kinds = append(kinds, m[1])
	}
	return kinds
}

// TestCommands: the commands of the texts are there, with their flags, and so are
// the targets of make.
func TestCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	n := 0
	eachText(t, func(t *testing.T, file, text string) {
		for _, m := range goRun.FindAllStringSubmatch(text, -1) {
			n++
			dir := strings.TrimRight(m[1], "`,.;")
			source := sources(t, dir)
			require.Containsf(t, source, "\nfunc main()", "%s runs %s", file, dir)
			flags, _, _ := strings.Cut(m[2], "`")
			flags, _, _ = strings.Cut(flags, "#")
			for _, f := range aFlag.FindAllStringSubmatch(flags, -1) {
				assert.Containsf(t, source, `"`+f[1]+`", `, "%s has no flag -%s", dir, f[1])
			}
		}
		for _, m := range target.FindAllStringSubmatch(commands(text), -1) {
			assert.Containsf(t, string(makefile), "\n"+m[1]+":", "make %s", m[1])
		}
	})
	assert.Greater(t, n, 5)
}

// sources are the Go files of a package.
func sources(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		b.Write(text)
	}
	return b.String()
}

// commands are the parts meant to be typed: lines that are indented, fences and
// pieces of code.
func commands(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") {
			b.WriteString(line)
		}
	}
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		b.WriteString(m[1] + "\n")
	}
	return b.String()
}

// TestMessages: what the texts show a program to say is what tests expect.
func TestMessages(t *testing.T) {
	tests := ""
	for _, text := range declarations(t, "examples/tour", "examples/vectoradd", "cuda/safe/blas", "cuda/generated/driver") {
		if !strings.Contains(tests, text) {
			tests += text
		}
	}
	eachText(t, func(t *testing.T, file, text string) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] != "text" {
				continue
			}
			for line := range strings.Lines(m[2]) {
				for part := range strings.SplitSeq(strings.TrimSpace(line), "...") {
					assert.Truef(t, strings.Contains(tests, part), "%s: no test expects %q", file, part)
				}
			}
		}
	})
}

// TestLinks: files that the texts link to exist, and so do the headings.
func TestLinks(t *testing.T) {
	eachText(t, func(t *testing.T, file, text string) {
		prose := fences.ReplaceAllString(text, "")
		prose = strings.ReplaceAll(prose, "](#", "]("+filepath.Base(file)+"#") // links within the page
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := filepath.Join(filepath.Dir(file), m[1])
			_, err := os.Stat(filepath.Join(root, to))
			assert.NoErrorf(t, err, "%s links to it", file)
			if m[2] == "" || err != nil {
				continue
			}
			page, err := os.ReadFile(filepath.Join(root, to))
			require.NoError(t, err)
			assert.Containsf(t, anchors(string(page)), m[2], "%s links to a heading of %s", file, to)
		}
	})
}

var (
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the headings of a page, as links name them.
func anchors(page string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
		all = append(all, "#"+strings.ReplaceAll(noAnchors.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

func TestAnchors(t *testing.T) {
	assert.Equal(t, []string{"#how-do-i-", "#2d-and-3d"}, anchors("# How do I ...\n```sh\n# not one\n```\n## `2D` and 3D\n"))
}
