package main

// The commands, with a pip that copies wheels of our own.

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/internal/pip/piptest"
)

const system = "linux/amd64"

// packed makes a wheel of files.
func packed(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for name, text := range files {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// world is a cache, pins and what pip downloads.
type world struct {
	root, wheels, log string
	pins              []pin
	driver            int // the major version of the machine's driver
}

// newWorld has libraries a, of two versions of CUDA, and b, which needs a.
func newWorld(t *testing.T) *world {
	w := &world{root: filepath.Join(t.TempDir(), "cudabind", "libs"), wheels: t.TempDir(), log: filepath.Join(t.TempDir(), "log")}
	require.NoError(t, os.Mkdir(filepath.Dir(w.root), 0o755))
	w.pin(t, "a", "13.5", nil, map[string]string{
		"nvidia/a/lib/liba.so.13": "a 13", "nvidia/a/lib/liba.alt.so.13": "other", "nvidia/a/include/a.h": "text",
		"a.dist-info/licenses/License.txt": "terms",
	})
	w.pin(t, "a", "12.9", nil, map[string]string{"nvidia/a/lib/liba.so.12": "a 12"})
	w.pin(t, "b", "13.5", []string{"a"}, map[string]string{"nvidia/b/lib/libb.so.1": "b"})
	piptest.Python(t, `echo "$args" >>"`+w.log+`"
cp "`+w.wheels+`/$1" "$dest/x.whl"`) // the requirement comes last
	return w
}

func (w *world) pin(t *testing.T, name, cuda string, needs []string, files map[string]string) {
	p := pin{name, cuda, "nvidia-" + name + "-cu" + cuda[:2], cuda + ".1", needs, map[string]file{}}
	wheel := filepath.Join(w.wheels, p.Wheel+"=="+p.Version)
	require.NoError(t, os.WriteFile(wheel, packed(t, files), 0o644))
	sum, err := sumOf(wheel)
	require.NoError(t, err)
	p.Files[system] = file{"manylinux1_x86_64", 7, sum}
	w.pins = append(w.pins, p)
}

// run runs a command line.
func (w *world) run(t *testing.T, line string) (stdout, stderr string, status int) {
	t.Helper()
	return w.runIn(t.Context(), line)
}

func (w *world) runIn(ctx context.Context, line string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	tool := &tool{w.pins, w.root, system, w.driver, &out, &errs}
	status = report(tool.run(ctx, strings.Fields(line)), &errs)
	return out.String(), errs.String(), status
}

// files are those below the cache, with their contents.
func (w *world) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(w.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			assert.False(t, err == nil && strings.HasPrefix(d.Name(), ".tmp"), "%s is left", name)
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(w.root, name)
		all[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return all
}

func (w *world) pipCalls(t *testing.T) int {
	data, _ := os.ReadFile(w.log)
	return bytes.Count(data, []byte("\n"))
}

func TestGet(t *testing.T) {
	w := newWorld(t)
	stdout, stderr, status := w.run(t, "get b a")
	require.Zero(t, status, stderr)
	assert.Equal(t, filepath.Join(w.root, "b", "13.5.1+cu13")+"\n"+filepath.Join(w.root, "a", "13.5.1+cu13")+"\n", stdout)
	assert.Equal(t, "a of CUDA 13.5: downloading nvidia-a-cu13 13.5.1 (7 MB)\nb of CUDA 13.5: downloading nvidia-b-cu13 13.5.1 (7 MB)\n", stderr)
	want := map[string]string{
		"a/13.5.1+cu13/liba.so.13": "a 13", "a/13.5.1+cu13/License.txt": "terms",
		"b/13.5.1+cu13/libb.so.1": "b", "b/13.5.1+cu13/liba.so.13": "a 13",
	}
	assert.Equal(t, want, w.files(t))
	log, err := os.ReadFile(w.log)
	require.NoError(t, err)
	assert.Contains(t, string(log), "--platform manylinux1_x86_64 nvidia-a-cu13==13.5.1\n")

	_, stderr, status = w.run(t, "get -version 12 a")
	require.Zero(t, status, stderr)
	want["a/12.9.1+cu12/liba.so.12"] = "a 12"
	assert.Equal(t, want, w.files(t))

	_, stderr, status = w.run(t, "get a b")
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.Equal(t, 3, w.pipCalls(t), "nothing is downloaded twice")
}

// TestGetForDriver: without -version, the libraries are those that the machine's driver takes.
func TestGetForDriver(t *testing.T) {
	for _, c := range []struct {
		name   string
		driver int
		want   string
	}{{"none", 0, "13.5.1+cu13"}, {"of CUDA 11", 11, "12.9.1+cu12"}, {"of CUDA 12", 12, "12.9.1+cu12"}, {"of CUDA 13", 13, "13.5.1+cu13"}, {"newer", 14, "13.5.1+cu13"}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.driver = c.driver
			stdout, stderr, status := w.run(t, "get a")
			require.Zero(t, status, stderr)
			assert.Equal(t, filepath.Join(w.root, "a", c.want)+"\n", stdout)
		})
	}
}

func TestGetFails(t *testing.T) {
	damaged := func(t *testing.T, w *world) {
		require.NoError(t, os.WriteFile(filepath.Join(w.wheels, "nvidia-a-cu13==13.5.1"), []byte("damaged"), 0o644))
	}
	python := func(lines string) func(t *testing.T, w *world) {
		return func(t *testing.T, w *world) { piptest.Python(t, lines) }
	}
	for _, tt := range []struct {
		name, args, want string
		change           func(t *testing.T, w *world)
	}{
		{"unknown library", "c", `unknown library "c"; known are a, b`, nil},
		{"one of two unknown", "a ../c", `unknown library "../c"`, nil},
		{"unknown version", "-version 11 a", `there is no a of CUDA "11"; known are 13, 12`, nil},
		{"wrong sum", "a", "a of CUDA 13.5: x.whl is not the pinned file: its sha256 is ", damaged},
		{"wrong sum of what it needs", "b", "b of CUDA 13.5: a, which it needs: x.whl is not the pinned file", damaged},
		{"no Python", "a", "there is no python3 in PATH, whose pip downloads the libraries: install Python 3 with pip, or install the CUDA toolkit",
			func(t *testing.T, _ *world) { t.Setenv("PATH", t.TempDir()) }},
		{"no pip", "a", "has no pip: install it", python("echo No module named pip >&2; exit 1")},
		{"no network", "a", "check the network and pip's settings, or install the CUDA toolkit", python("echo Connection refused >&2; exit 1")},
		{"gone from the index", "a", "there is no such package", python("echo 'ERROR: No matching distribution found' >&2; exit 1")},
		{"pip does nothing", "a", "it left 0 files", python("exit 0")},
		{"no library in the wheel", "d", "x.whl: there is no library in it", func(t *testing.T, w *world) {
			w.pin(t, "d", "13.5", nil, map[string]string{"nvidia/d/include/d.h": "text"})
		}},
		{"another system", "a", "there are wheels for linux/amd64 and linux/arm64 alone, not for linux/amd64", func(t *testing.T, w *world) {
			w.pins[0].Files = nil
		}},
		{"no room", "a", "libs", func(t *testing.T, w *world) {
			require.NoError(t, os.WriteFile(w.root, nil, 0o644))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.change != nil {
				tt.change(t, w)
			}
			stdout, stderr, status := w.run(t, "get "+tt.args)
			assert.Equal(t, 1, status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.want)
			if tt.name != "no room" {
				assert.Empty(t, w.files(t), "nothing half-written")
			}
		})
	}
}

func TestGetInterrupted(t *testing.T) {
	w := newWorld(t)
	piptest.Python(t, "exec sleep 60")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, stderr, status := w.runIn(ctx, "get a")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "context canceled")
	assert.Empty(t, w.files(t))
}

// TestGetAtOnce: whoever is first installs, and the others are content with it.
func TestGetAtOnce(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, stderr, status := w.runIn(t.Context(), "get b")
			assert.Zero(t, status, stderr)
		})
	}
	all.Wait()
	assert.Len(t, w.files(t), 4)
}

func TestListAndRemove(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{"get b", "get -version 12 a"} {
		_, stderr, status := w.run(t, line)
		require.Zero(t, status, stderr)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(w.root, "a", "13.4.9+cu13"), 0o755)) // of an older list
	stdout, _, status := w.run(t, "list")
	require.Zero(t, status)
	var rows []string
	for line := range strings.Lines(stdout) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for _, row := range []string{
		"a 13.5 nvidia-a-cu13 13.5.1 7 " + w.root + "/a/13.5.1+cu13",
		"a 12.9 nvidia-a-cu12 12.9.1 7 " + w.root + "/a/12.9.1+cu12",
		"b 13.5 nvidia-b-cu13 13.5.1 7 " + w.root + "/b/13.5.1+cu13",
		"a - - 13.4.9+cu13 - " + w.root + "/a/13.4.9+cu13",
	} {
		assert.Contains(t, rows, row)
	}

	stdout, _, status = w.run(t, "remove -version 13 a")
	assert.Zero(t, status)
	assert.Equal(t, 2, strings.Count(stdout, "removed "))
	assert.Equal(t, map[string]string{
		"a/12.9.1+cu12/liba.so.12": "a 12",
		"b/13.5.1+cu13/libb.so.1":  "b", "b/13.5.1+cu13/liba.so.13": "a 13", // b still has what it needs
	}, w.files(t))
	for line, want := range map[string]string{
		"remove -version 13 a": "there is nothing to remove of a",
		"remove ..":            `".." is not the name of a library`,
	} {
		_, stderr, status := w.run(t, line)
		assert.Equal(t, 1, status)
		assert.Contains(t, stderr, want)
	}
	stdout, _, _ = w.run(t, "list")
	assert.Regexp(t, `(?m)^a +13.5 +nvidia-a-cu13 +13.5.1 +7 +-$`, stdout)
	_, _, status = w.run(t, "remove a b")
	assert.Zero(t, status)
	assert.Empty(t, w.files(t))
}

// TestRemoveLeavesOthers: what get has not made stays, and the error names it.
func TestRemoveLeavesOthers(t *testing.T) {
	const folder = "a/13.5.1+cu13"
	for _, other := range []struct {
		name string
		put  func(root string) error
		file string // that stays
		says string // with ROOT
	}{
		{"a file", func(root string) error { return os.WriteFile(root+"/"+folder+"/notes.txt", nil, 0o600) }, folder + "/notes.txt", "get has not made ROOT/" + folder + "/notes.txt"},
		{"a folder", func(root string) error { return os.MkdirAll(root+"/"+folder+"/libx.so.1", 0o700) }, folder + "/libx.so.1", "get has not made ROOT/" + folder + "/libx.so.1"},
		{"a link", func(root string) error { return os.Symlink("/dev/null", root+"/"+folder+"/libx.so.1") }, folder + "/liba.so.13", "get has not made ROOT/" + folder + "/libx.so.1"},
		{"another version", func(root string) error { return os.MkdirAll(root+"/a/mine+cu12", 0o700) }, "a/mine+cu12", "get has not made ROOT/a/mine+cu12"},
		{"a link to a folder", func(root string) error {
			return errors.Join(os.RemoveAll(root+"/a"), os.MkdirAll(root+"/../../mine/1.0+cu13", 0o700), os.Symlink("../../mine", root+"/a"))
		}, "../../mine/1.0+cu13", "there is nothing to remove of a"},
		{"a link to a version", func(root string) error {
			return errors.Join(os.Mkdir(root+"/../mine", 0o700), os.Symlink("../../mine", root+"/a/1.0+cu13"))
		}, "../mine", "get has not made ROOT/a/1.0+cu13"},
	} {
		t.Run(other.name, func(t *testing.T) {
			w := newWorld(t)
			_, _, status := w.run(t, "get a")
			require.Zero(t, status)
			require.NoError(t, other.put(w.root))
			_, stderr, status := w.run(t, "remove a")
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, strings.ReplaceAll(other.says, "ROOT", w.root))
			_, err := os.Stat(filepath.Join(w.root, other.file))
			assert.NoError(t, err)
		})
	}
}

// TestGetIntoSharedCache: programs would not load from there.
func TestGetIntoSharedCache(t *testing.T) {
	for _, folder := range []string{"..", ".", "a", "a/13.5.1+cu13"} {
		t.Run(folder, func(t *testing.T) {
			w := newWorld(t)
			dir := filepath.Join(w.root, folder)
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.NoError(t, os.Chmod(dir, 0o777))
			_, stderr, status := w.run(t, "get a")
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, "other users can write to "+dir+" (mode 0777): run chmod go-w on it")
		})
	}
}

// TestListShowsWhatPackagesFind: what was downloaded is found.
func TestListShowsWhatPackagesFind(t *testing.T) {
	w := newWorld(t)
	stdout, _, _ := w.run(t, "list")
	for _, p := range packages {
		assert.Regexp(t, `(?m)^`+p.name+` +(\d+\.\w+|-) +(/|cuda: )`, stdout)
	}
}

func TestUsage(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ name, args, want string }{
		{"no command", "", "no command"},
		{"unknown command", "fetch a", `unknown command "fetch"`},
		{"get nothing", "get", "get what?"},
		{"remove nothing", "remove", "remove what?"},
		{"unknown flag", "get -to x a", "flag provided but not defined: -to"},
		{"list something", "list a", "list takes no arguments"},
		{"pin without file", "pin 13.5", "pin needs -o FILE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := w.run(t, tt.args)
			assert.Equal(t, 2, status)
			assert.Empty(t, stdout)
			assert.Equal(t, "libs: "+tt.want+"\n"+usage, stderr)
		})
	}
	for _, args := range []string{"help", "get -h"} {
		stdout, _, status := w.run(t, args)
		assert.Zero(t, status)
		assert.Equal(t, usage, stdout)
	}
}

// TestPins: the list that is built in has every library for both majors and both
// systems.
func TestPins(t *testing.T) {
	pins, err := parsePins(embedded)
	require.NoError(t, err)
	for _, s := range sources {
		for _, major := range []string{"12", "13"} {
			p, err := find(pins, s.name, major)
			if assert.NoError(t, err) {
				assert.Len(t, p.Files, len(systems), s.name)
				assert.Equal(t, s.needs, p.Needs, s.name)
			}
		}
	}
	assert.Len(t, pins, 2*len(sources))

	one := `{"name": "a", "cuda": "13.5", "wheel": "w", "version": "1.2", "files": {"linux/amd64": {"platform": "p", "mb": 1, "sha256": "` + strings.Repeat("0", 64) + `"}}}`
	_, err = parsePins([]byte("[" + one + "]"))
	require.NoError(t, err)
	for old, bad := range map[string]string{
		`"a"`: `"../a"`, `"13.5"`: `"13"`, `"w"`: `"-w"`, `"1.2"`: `"1.2 b"`, `"p"`: `"p q"`, `"sha256": "0`: `"sha256": "x`,
		`"version"`: `"needs": ["b"], "version"`, `"mb"`: `"gb"`,
	} {
		_, err = parsePins([]byte("[" + strings.Replace(one, old, bad, 1) + "]"))
		assert.Error(t, err, bad)
	}
}

// TestPin writes a list from pip's report.
func TestPin(t *testing.T) {
	out := filepath.Join(t.TempDir(), "pins.json")
	sum := strings.Repeat("0", 64)
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "6600000")
	}))
	t.Cleanup(index.Close)
	var entries []string
	for _, s := range sources {
		entries = append(entries, `{"metadata": {"name": "`+strings.ReplaceAll(s.wheel, "-", "_")+`", "version": "1.2"}, "download_info": {"url": "`+
			index.URL+`/x-1.2-py3-none-manylinux1_x.manylinux2_x.whl", "archive_info": {"hashes": {"sha256": "`+sum+`"}}}}`)
	}
	piptest.Python(t, `cat >"$report" <<'END'
{"install": [`+strings.Join(entries, ",")+`]}
END`)
	var stderr bytes.Buffer
	require.NoError(t, writePins(t.Context(), out, []string{"13.5", "12.9"}, &stderr))
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	pins, err := parsePins(data)
	require.NoError(t, err)
	require.Len(t, pins, 2*len(sources))
	assert.Equal(t, pin{"cublas", "13.5", "nvidia-cublas", "1.2", []string{"nvrtc"}, map[string]file{
		"linux/amd64": {"manylinux1_x", 7, sum}, "linux/arm64": {"manylinux1_x", 7, sum},
	}}, pins[0])

	piptest.Python(t, `echo '{"install": []}' >"$report"`)
	assert.ErrorContains(t, writePins(t.Context(), out, []string{"13.5"}, &stderr), "CUDA 13.5: pip found no nvidia-cublas for linux/")
	again, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, data, again)
}

// TestRun uses the built-in list and the user's cache.
func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the variable is for Linux")
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	dir := filepath.Join(cache, "cudabind", "libs", "nvrtc", "13.4.1+cu13")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	var stdout, stderr bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"list"}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), dir)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	assert.ErrorContains(t, run(t.Context(), []string{"list"}, &stdout, &stderr), "no folder to keep libraries in")
}
