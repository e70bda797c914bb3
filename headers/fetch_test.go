package headers

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/internal/pip/piptest"
)

func TestFetch(t *testing.T) {
	r := sampleRelease(t)
	want := filepath.Join(place(t), "12.9")
	log := filepath.Join(t.TempDir(), "log")
	file := filepath.Join(t.TempDir(), sampleWheel)
	require.NoError(t, os.WriteFile(file, packed(t, inWheel(sample)), 0o644))
	piptest.Python(t, `echo "$args" >>"`+log+`"; cp "`+file+`" "$dest"`)

	var progress bytes.Buffer
	dir, err := r.Fetch(t.Context(), &progress)
	require.NoError(t, err)
	assert.Equal(t, want, dir)
	assert.Equal(t, "asking pip where to find sample-pkg\nCUDA 12.9: downloading sample-pkg 12.9.79\nsample-pkg==12.9.79: downloading the whole package\n", progress.String())
	assert.NoError(t, r.verify(dir))
	assert.Equal(t, []string{"cuda.h", "cudaTypedefs.h", "cuda_runtime_api.h", "library_types.h", "sub"}, names(t, dir))
	assert.Equal(t, []string{"12.9"}, names(t, filepath.Dir(dir)))
	assert.Empty(t, names(t, os.TempDir()))

	args, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Contains(t, string(args), "download --dest ")
	assert.Contains(t, string(args), " --no-deps --only-binary=:all: ")
	assert.Contains(t, string(args), "--quiet --platform manylinux1_x86_64 sample-pkg==12.9.79\n")

	t.Run("again", func(t *testing.T) {
		t.Setenv("PATH", "")
		var progress bytes.Buffer
		again, err := r.Fetch(t.Context(), &progress)
		require.NoError(t, err)
		assert.Equal(t, dir, again)
		assert.Empty(t, progress.String())
	})
}

func TestFetchMendsDamage(t *testing.T) {
	tests := []struct {
		name  string
		there tree
	}{
		{"empty folder", tree{}},
		{"one missing", sample.without("sub/types.h")},
		{"one changed", sample.with("cuda.h", "changed")},
		{"another file beside", sample.without("cuda.h").with("note.txt", "mine")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, want := sampleRelease(t), filepath.Join(place(t), "12.9")
			require.NoError(t, os.MkdirAll(want, 0o755))
			tt.there.write(t, want)
			fakePip(t, sampleWheel, packed(t, inWheel(sample)))
			dir, err := r.Fetch(t.Context(), nil)
			require.NoError(t, err)
			assert.NoError(t, r.verify(dir))
			assert.Equal(t, []string{"12.9"}, names(t, filepath.Dir(dir)))
		})
	}
}

// Each failure names the thing and leaves nothing behind.
func TestFetchFails(t *testing.T) {
	good := packed(t, inWheel(sample))
	pip := func(data []byte) func(*testing.T) {
		return func(t *testing.T) { fakePip(t, sampleWheel, data) }
	}
	python := func(lines string) func(*testing.T) {
		return func(t *testing.T) { piptest.Python(t, lines) }
	}
	// pinnedTo is a release whose wheel has the right sum, whatever is in it.
	pinnedTo := func(data []byte) Release {
		r := sampleRelease(t)
		r.SHA256 = sum(data)
		return r
	}
	lacking := packed(t, inWheel(sample.without("sub/more.h")))
	changed := packed(t, inWheel(sample.with("sub/more.h", "changed")))
	evil := packed(t, inWheel(sample).with("../../cuda.h", "evil"))
	tests := []struct {
		name    string
		release Release
		setup   func(*testing.T)
		want    []string
	}{
		{"no python", pinnedTo(good), func(t *testing.T) { t.Setenv("PATH", t.TempDir()) },
			[]string{"no python3 in PATH", "gen -headers DIR/include", "headers fetch -from"}},
		{"no pip", pinnedTo(good), python(`echo "python3: No module named pip" >&2; exit 1`),
			[]string{"python3 has no pip: install it", "fetch -from"}},
		{"no network", pinnedTo(good), python(`for i in 1 2 3 4 5 6; do echo "WARNING: retry $i" >&2; done; echo "ERROR: none found" >&2; exit 1`),
			[]string{"could not download sample-pkg==12.9.79 (exit status 1)", "check the network", "pip said:\n\tWARNING: retry 3\n", "\tERROR: none found"}},
		{"no connection", pinnedTo(good), python(`echo "WARNING: Retrying after connection broken by 'NewConnectionError'" >&2; echo "ERROR: No matching distribution found for sample-pkg" >&2; exit 1`),
			[]string{"could not download sample-pkg (there is no connection)", "check the network"}},
		{"pip leaves nothing", pinnedTo(good), python(`exit 0`), []string{"left 0 files"}},
		{"pip leaves a source archive", pinnedTo(good), python(`echo x >"$dest/sample.tar.gz"`), []string{"left 1 files"}},
		{"wrong sum", pinnedTo(good), pip(append(good, 0)), []string{sampleWheel + " is not the pinned file", sum(good)}},
		{"truncated", pinnedTo(good), pip(good[:len(good)/2]), []string{sampleWheel + " is not the pinned file"}},
		{"truncated when pinned", pinnedTo(good[:300]), pip(good[:300]), []string{sampleWheel + " is no whole archive"}},
		{"unsafe path", pinnedTo(evil), pip(evil), []string{sampleWheel + " is not to be trusted", "../../cuda.h"}},
		{"header missing", pinnedTo(lacking), pip(lacking), []string{sampleWheel + ": it lacks the header sub/more.h"}},
		{"header differs", pinnedTo(changed), pip(changed), []string{"sub/more.h is not the pinned one"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := place(t)
			tt.setup(t)
			var progress strings.Builder
			dir, err := tt.release.Fetch(t.Context(), &progress)
			require.Error(t, err)
			assert.Empty(t, dir)
			if tt.name == "no python" || tt.name == "no pip" {
				assert.NotContains(t, progress.String(), "downloading")
			}
			for _, want := range append(tt.want, "CUDA 12.9: ") {
				assert.ErrorContains(t, err, want)
			}
			assert.Empty(t, names(t, base))
			assert.Empty(t, names(t, os.TempDir()))
		})
	}
}

func TestFetchCancelled(t *testing.T) {
	base := place(t)
	piptest.Python(t, `exec sleep 60`)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := sampleRelease(t).Fetch(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "download of sample-pkg==12.9.79")
	assert.Less(t, time.Since(start), 30*time.Second)
	assert.Empty(t, names(t, base))
	assert.Empty(t, names(t, os.TempDir()))
}

func TestFetchFrom(t *testing.T) {
	tests := []struct {
		name  string
		there tree
		dir   string // given to FetchFrom, in the folder that there is written to
		want  []string
	}{
		{"include folder", sample, "", nil},
		{"toolkit", inWheel(sample), "nvidia/sample", nil},
		{"no toolkit", tree{"other.h": ""}, "", []string{"is no CUDA toolkit: there is no cuda.h in it"}},
		{"no folder", sample, "absent", []string{"is no CUDA toolkit"}},
		{"another version", sample.with("cuda.h", "#define CUDA_VERSION 12080\n"), "", []string{": cuda.h is of CUDA 12.8, not 12.9"}},
		{"another patch", sample.with("sub/types.h", "patched"), "",
			[]string{filepath.Join("sub", "types.h") + " is of CUDA 12.9, but of another patch than the pinned 12.9.79", "gen -headers "}},
		{"header missing", sample.without("sub/types.h"), "", []string{"CUDA 12.9: ", "types.h"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base, from := place(t), t.TempDir()
			tt.there.write(t, from)
			r := sampleRelease(t)
			dir, err := r.FetchFrom(filepath.Join(from, filepath.FromSlash(tt.dir)))
			if tt.want == nil {
				require.NoError(t, err)
				assert.Equal(t, filepath.Join(base, "12.9"), dir)
				assert.NoError(t, r.verify(dir))
				assert.Equal(t, []string{"12.9"}, names(t, base))
				return
			}
			require.Error(t, err)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
			assert.Empty(t, names(t, base))
		})
	}
}

func TestFetchFromWithLibraries(t *testing.T) {
	r, base := libraryRelease(t), place(t)
	from := t.TempDir()
	sample.write(t, from)
	_, err := r.FetchFrom(from)
	require.ErrorContains(t, err, "lib.h")
	assert.ErrorContains(t, err, "gen -headers "+from)
	assert.Empty(t, names(t, base))

	both().write(t, from)
	dir, err := r.FetchFrom(from)
	require.NoError(t, err)
	assert.NoError(t, r.verify(dir))
}

func TestFetchAll(t *testing.T) {
	base := place(t)
	older, newer := libraryRelease(t), libraryRelease(t)
	older.Version = "12.8" // of the same wheels
	s := newSite(t, inParts, bothWheels(t))
	var progress bytes.Buffer
	dirs, err := FetchAll(t.Context(), []Release{newer, older}, &progress)
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(base, "12.9"), filepath.Join(base, "12.8")}, dirs)
	assert.NoError(t, newer.verify(dirs[0]))
	assert.NoError(t, older.verify(dirs[1]))
	assert.Equal(t, 4, strings.Count(progress.String(), ": downloading "))
	assert.Equal(t, []string{"index sample-lib sample-pkg"}, s.pipCalls(t), "one call for all versions")

	older.Version = "12.7"
	older.Headers = []File{{"cuda.h", sum(nil)}}
	dirs, err = FetchAll(t.Context(), []Release{newer, older}, nil)
	assert.ErrorContains(t, err, "CUDA 12.7: "+sampleWheel+": cuda.h is not the pinned one")
	assert.Empty(t, dirs)
	assert.Equal(t, []string{"12.8", "12.9"}, names(t, base))
}

func TestFetchFromOverThePresent(t *testing.T) {
	want := filepath.Join(place(t), "12.9")
	sample.write(t, want)
	from := t.TempDir()
	sample.write(t, from)
	dir, err := sampleRelease(t).FetchFrom(from)
	require.NoError(t, err)
	assert.Equal(t, want, dir)

	_, err = sampleRelease(t).FetchFrom(t.TempDir())
	assert.ErrorContains(t, err, "is no CUDA toolkit", "that the headers are there does not hide a bad folder")
}

// TestNetwork downloads the oldest and the newest real release.
func TestNetwork(t *testing.T) {
	if os.Getenv("CUDABIND_TEST_NETWORK") != "1" {
		t.Skip("downloads; set CUDABIND_TEST_NETWORK=1")
	}
	place(t)
	releases := Releases()
	for _, r := range []Release{releases[0], releases[len(releases)-1]} {
		var progress strings.Builder
		dir, err := Fetch(t.Context(), r.Version, &progress)
		require.NoError(t, err)
		assert.Contains(t, progress.String(), r.WheelVersion)
		found, err := Find(r.Version)
		require.NoError(t, err)
		assert.Equal(t, dir, found)
	}
	_, err := Pin(t.Context(), "11.99", nil)
	assert.ErrorContains(t, err, "could not download nvidia-cuda-runtime-cu11==11.99.*")
	assert.NotErrorIs(t, err, fs.ErrNotExist)
}
