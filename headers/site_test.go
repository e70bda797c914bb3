package headers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/internal/pip/piptest"
)

const (
	libraryWheel = "sample_lib-12.9.86-py3-none-manylinux_2_12_x86_64.whl"
	librarySize  = 1 << 20 // of what the wheel holds beside its header
)

var librarySample = tree{"lib.h": "#include <stdlib.h>\nint sampleLib(void);\n"}

// libraryRelease is the sample with a library.
func libraryRelease(tb testing.TB) Release {
	files, err := pinned(librarySample, []string{"lib.h"})
	require.NoError(tb, err)
	r := sampleRelease(tb)
	r.Libraries = []Library{{"lib", Package{
		Wheel: "sample-lib", WheelVersion: "12.9.86", Platform: "manylinux_2_12_x86_64",
		SHA256: sum(packedLibrary(tb, librarySample)), Headers: files,
	}}}
	return r
}

// packedLibrary is a wheel with few headers and much else.
func packedLibrary(tb testing.TB, t tree) []byte {
	return packed(tb, inWheel(t).with("nvidia/sample/lib/liblib.so", noise(librarySize)))
}

// noise does not get smaller in an archive.
func noise(n int) string {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	return string(data)
}

// site is a web server with wheels, and counts.
type site struct {
	requests, sent atomic.Int64
	pipLog         string // the file with the arguments of each call of pip
}

// answer is how a site answers a request for a file.
type answer func(w http.ResponseWriter, r *http.Request, data []byte)

// inParts answers range requests, as most servers do.
func inParts(w http.ResponseWriter, r *http.Request, data []byte) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// counted counts the bytes of an answer.
type counted struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// newSite serves wheels, and puts a pip in PATH that reports their links and
// can download them whole.
func newSite(t *testing.T, how answer, wheels map[string][]byte) *site {
	s := &site{pipLog: filepath.Join(t.TempDir(), "pip.log")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		how(counted{w, &s.sent}, r, wheels[strings.TrimPrefix(r.URL.Path, "/")])
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	for file, data := range wheels {
		name, _, _ := strings.Cut(file, "-")
		pkg := filepath.Join(dir, strings.ReplaceAll(name, "_", "-"))
		require.NoError(t, os.MkdirAll(filepath.Join(pkg, "file"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(pkg, "file", file), data, 0o644))
		entry := fmt.Sprintf(`{"metadata": {"name": %q}, "download_info": {"url": "%s/%s#part", "archive_info": {"hashes": {"sha256": %q}}}}`,
			name, server.URL, file, sum(data))
		require.NoError(t, os.WriteFile(filepath.Join(pkg, "report"), []byte(entry), 0o644))
		line := fmt.Sprintf("2026-01-02T03:04:05,678   Found link %s/%s (from %s/simple/) (requires-python:>=3), version: %s\n",
			server.URL, file, server.URL, strings.Split(file, "-")[1])
		require.NoError(t, os.WriteFile(filepath.Join(pkg, "log"), []byte(line), 0o644))
	}
	piptest.Python(t, `
echo "$args" >>"`+s.pipLog+`"
sep=
[ -n "$report" ] && printf '{"install": [' >"$report"
for q in $args; do
	case $q in sample-* | cuda-* | nvidia-*) ;; *) continue ;; esac
	pkg="`+dir+`/${q%%==*}"
	[ -d "$pkg" ] || { echo "ERROR: No matching distribution found for $q" >&2; exit 1; }
	[ -n "$log" ] && cat "$pkg/log" >>"$log"
	[ -n "$report" ] && { printf "$sep"; cat "$pkg/report"; } >>"$report"
	[ -n "$dest" ] && cp "$pkg"/file/* "$dest"
	sep=,
done
[ -n "$report" ] && printf ']}' >>"$report"
exit 0`)
	return s
}

// pipCalls gives the command of pip and the requirements of each call.
func (s *site) pipCalls(t *testing.T) []string {
	data, err := os.ReadFile(s.pipLog)
	require.NoError(t, err)
	var calls []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		call := fields[0]
		for _, f := range fields {
			if strings.Contains(f, "==") || strings.HasPrefix(f, "nvidia-") || strings.HasPrefix(f, "sample-") {
				call += " " + f
			}
		}
		calls = append(calls, call)
	}
	return calls
}
