package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/headers"
)

// The sentence that the tests plant; garden has it too.
const planted = "The gardener waters every bed of roses before the sun\n"

// folder makes a temporary folder with the named files in it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return dir
}

// repository makes a git work tree with the named files in it, all tracked.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	// Neither the user's settings nor a hook that runs the tests play a part.
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "GIT_") {
			t.Setenv(name, "") // puts it back in the end
			require.NoError(t, os.Unsetenv(name))
		}
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	dir := folder(t, files)
	git(t, dir, "init", "--quiet")
	git(t, dir, "add", ".")
	return dir
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// gardenFolder is a folder of fetched headers of two versions.
func gardenFolder(t *testing.T) string {
	return folder(t, map[string]string{
		"12.4/garden.h":         garden,
		"12.4/LICENSE":          "a licence is no header but may stand beside them",
		"12.5/include/garden.h": garden,
		"12.5/include/beds/new.hpp": `// Every year another bed is dug behind the old wall.
			void gardenDig();`,
		".tmp-12.6/garden.h": "/* a header that is being fetched at this very moment is not read */",
	})
}

func TestRun(t *testing.T) {
	repo := repository(t, map[string]string{
		"README.md":           "# Beds\n\nSee below.\n\n" + planted,
		"doc/beds.go":         "package doc\n\n// Every year another bed\n// is dug behind\n// the old wall.\n",
		"doc/testdata/bed.h":  "/* " + planted + " */",
		"doc/own.go":          "package doc\n\n// Dig makes room for one more bed.\nfunc Dig()\n",
		"go.sum":              planted,
		"image.bin":           "\x00" + planted,
		"name with space.txt": planted,
		"gone.txt":            planted,
		".gitignore":          "/headers/\n",
	})
	write := func(name, text string) {
		name = filepath.Join(repo, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	write("untracked.txt", planted+"\n"+planted)
	write("headers/garden.h", garden)
	require.NoError(t, os.Remove(filepath.Join(repo, "gone.txt")))

	var stdout, stderr bytes.Buffer
	err := run([]string{"-repo", repo, "-headers", gardenFolder(t)}, &stdout, &stderr)

	const roses = `shares "The gardener waters every bed of roses before ..." with garden.h of CUDA 12.4`
	assert.Equal(t, []string{
		"README.md:5: " + roses,
		`doc/beds.go:3: shares "Every year another bed is dug behind the ..." with include/beds/new.hpp of CUDA 12.5`,
		"doc/testdata/bed.h:1: " + roses,
		"name with space.txt:1: " + roses,
		"untracked.txt:1: " + roses,
		"untracked.txt:3: " + roses,
		"",
	}, strings.Split(stdout.String(), "\n"))
	assert.EqualError(t, err, "6 passages are those of NVIDIA's headers: say it in other words")
	assert.Empty(t, stderr.String())
}

func TestRunClean(t *testing.T) {
	repo := repository(t, map[string]string{"README.md": "# Beds\n", "bed.go": "package bed\n"})
	var stdout, stderr bytes.Buffer
	require.NoError(t, run([]string{"-repo", repo, "-headers", gardenFolder(t)}, &stdout, &stderr))
	assert.Empty(t, stdout.String())
	assert.Equal(t, "provenance: 2 files share no sentence with 3 CUDA headers\n", stderr.String())
}

// A link is not followed: what it leads to is tracked itself or not ours.
func TestRunPassesLinks(t *testing.T) {
	repo := repository(t, map[string]string{"README.md": "# Beds\n"})
	if err := os.Symlink(filepath.Join(folder(t, map[string]string{"bed": planted}), "bed"), filepath.Join(repo, "link")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	assert.NoError(t, run([]string{"-repo", repo, "-headers", gardenFolder(t)}, &bytes.Buffer{}, &bytes.Buffer{}))
}

// A file in conflict is tracked in three versions but is one file.
func TestRunReportsFileInConflictOnce(t *testing.T) {
	repo := repository(t, map[string]string{"a": "1", "b": "2", "c": planted})
	var index strings.Builder
	for stage, name := range []string{"a", "b", "c"} {
		cmd := exec.Command("git", "rev-parse", ":"+name)
		cmd.Dir = repo
		hash, err := cmd.Output()
		require.NoError(t, err)
		index.WriteString("100644 " + strings.TrimSpace(string(hash)) + " " + string(rune('1'+stage)) + "\tboth\n")
	}
	cmd := exec.Command("git", "update-index", "--index-info")
	cmd.Dir, cmd.Stdin = repo, strings.NewReader(index.String())
	require.NoError(t, cmd.Run())

	files, err := listFiles(repo)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "both", "c"}, files)
}

func TestRunErrors(t *testing.T) {
	full := gardenFolder(t)
	repo := repository(t, map[string]string{"README.md": planted})
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no folder of headers", []string{"-headers", filepath.Join(full, "absent")}, "no CUDA headers with comments below"},
		{"empty folder of headers", []string{"-headers", t.TempDir()}, "go run ./tools/headers fetch all"},
		{"headers without comments", []string{"-headers", folder(t, map[string]string{"12.4/a.h": "int a;"})}, "no CUDA headers with comments below"},
		{"a version's own folder", []string{"-headers", filepath.Join(full, "12.4")}, "garden.h is a header: -headers wants the folder above"},
		{"a file for a folder", []string{"-headers", filepath.Join(full, "12.4", "LICENSE")}, "LICENSE"},
		{"no repository", []string{"-headers", full, "-repo", t.TempDir()}, "git ls-files in "},
		{"no such repository", []string{"-headers", full, "-repo", filepath.Join(full, "absent")}, "git ls-files in "},
		{"empty repository", []string{"-headers", full, "-repo", repository(t, nil)}, "git knows no files in "},
		{"argument", []string{"-headers", full, "README.md"}, `unexpected argument "README.md"`},
		{"unknown flag", []string{"-header", full}, "flag provided but not defined"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"-repo", repo}, tt.args...) // the last -repo counts
			var stdout bytes.Buffer
			assert.ErrorContains(t, run(args, &stdout, &bytes.Buffer{}), tt.want)
			assert.Empty(t, stdout.String())
		})
	}
}

func TestRunHelp(t *testing.T) {
	var stderr bytes.Buffer
	err := run([]string{"-h"}, &bytes.Buffer{}, &stderr)
	assert.True(t, errors.Is(err, flag.ErrHelp))
	assert.Contains(t, stderr.String(), "-headers DIR")
}

func TestRunUnreadableHeader(t *testing.T) {
	dir := gardenFolder(t)
	if err := os.Symlink("nowhere", filepath.Join(dir, "12.4", "lost.h")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	err := run([]string{"-headers", dir}, &bytes.Buffer{}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "headers of CUDA 12.4: ")
}

// Without -headers every pinned version has to be there.
func TestRunNamesMissingVersions(t *testing.T) {
	dir := gardenFolder(t)
	t.Setenv(headers.EnvDir, dir)
	err := run([]string{"-repo", t.TempDir()}, &bytes.Buffer{}, &bytes.Buffer{})
	require.Error(t, err)
	assert.ErrorContains(t, err, dir+" lacks the headers of CUDA ")
	for _, r := range headers.Releases() {
		assert.ErrorContains(t, err, r.Version)
	}
	assert.ErrorContains(t, err, "go run ./tools/headers fetch all")
}

// requirePinned returns the folder of the real headers; without them it skips.
func requirePinned(tb testing.TB) string {
	tb.Helper()
	dir, err := headers.Dir()
	require.NoError(tb, err)
	if err := checkPinned(dir); err != nil {
		tb.Skip(err)
	}
	return dir
}

// The repository itself, compared with the real headers.
func TestRepository(t *testing.T) {
	const root = "../.."
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("this is no git checkout")
	}
	requirePinned(t)
	var stdout bytes.Buffer
	err := run([]string{"-repo", root}, &stdout, &bytes.Buffer{})
	assert.NoError(t, err, stdout.String())
}

func TestRealHeaders(t *testing.T) {
	dir := requirePinned(t)
	x, err := load("")
	require.NoError(t, err)
	source := func(h header) []byte {
		text, err := os.ReadFile(filepath.Join(dir, h.version, filepath.FromSlash(h.name)))
		require.NoError(t, err)
		return text
	}

	t.Run("what they declare may be repeated", func(t *testing.T) {
		for _, h := range x.headers {
			if h.name == "nvml.h" { // a comment of it holds code
				continue
			}
			assert.Empty(t, x.find(codeOf(source(h))), h)
		}
	})
	t.Run("each comment of some length is found", func(t *testing.T) {
		releases := headers.Releases()
		newest := releases[len(releases)-1].Version
		for c := range comments(source(header{newest, "cuda.h"})) {
			prose := 0
			for _, word := range words(c) {
				if isProse(word) {
					prose++
				}
			}
			if prose >= 2*runLength {
				assert.NotEmpty(t, x.find(c), "comment of %d words of prose", prose)
			}
		}
	})
}
