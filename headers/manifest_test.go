package headers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEmbeddedManifest(t *testing.T) {
	releases, err := ParseManifest(embedded)
	require.NoError(t, err)
	var versions []string
	for _, r := range releases {
		versions = append(versions, r.Version)
		assert.Equal(t, runtimePart.wheelOf(r.Version), r.Wheel, r.Version)
		for _, root := range runtimePart.roots {
			assert.True(t, slices.ContainsFunc(r.Headers, func(f File) bool { return f.Path == root }),
				"%s lacks %s", r.Version, root)
		}
	}
	for _, r := range releases {
		known := slices.DeleteFunc(slices.Clone(libraries), func(p part) bool { return compareVersions(r.Version, p.since) < 0 })
		require.Len(t, r.Libraries, len(known), r.Version)
		for i, l := range r.Libraries {
			assert.Equal(t, known[i].library, l.Name, r.Version)
			assert.Equal(t, known[i].wheelOf(r.Version), l.Wheel, r.Version)
			assert.Truef(t, known[i].number != asCUDA || strings.HasPrefix(l.WheelVersion, r.Version+"."), "%s of CUDA %s is %s", l.Name, r.Version, l.WheelVersion)
			for _, root := range known[i].roots {
				assert.True(t, slices.ContainsFunc(l.Headers, func(f File) bool { return f.Path == root }),
					"%s lacks %s", r.Version, root)
			}
		}
	}
	const atLeast = "11.8 12.0 12.1 12.2 12.3 12.4 12.5 12.6 12.8 12.9 13.0 13.1 13.2 13.3 13.4 13.5"
	assert.Equal(t, strings.Fields(atLeast), versions[:min(16, len(versions))])
	assert.Equal(t, releases, Releases())

	again, err := FormatManifest(releases)
	require.NoError(t, err)
	assert.Equal(t, string(embedded), string(again), "the file is not as FormatManifest writes it")
}

func TestLookup(t *testing.T) {
	r, err := Lookup("12.9")
	require.NoError(t, err)
	assert.Equal(t, "12.9", r.Version)
	assert.Equal(t, "nvidia-cuda-runtime-cu12", r.Wheel)
}

func TestReleasesAreCopies(t *testing.T) {
	releases := Releases()
	want := releases[0].Headers[0].Path
	releases[0].Headers[0].Path = "changed"
	wantLibrary := releases[0].Libraries[0]
	releases[0].Libraries[0].Headers[0].Path = "changed"
	releases[0].Libraries[0].Name = "changed"
	releases[1].Version = "changed"
	assert.Equal(t, want, Releases()[0].Headers[0].Path)
	assert.NotEqual(t, "changed", Releases()[1].Version)
	assert.Equal(t, wantLibrary.Name, Releases()[0].Libraries[0].Name)
	assert.NotEqual(t, "changed", Releases()[0].Libraries[0].Headers[0].Path)
}

func TestFormatManifest(t *testing.T) {
	older, newer := sampleRelease(t), libraryRelease(t)
	newer.Version, newer.WheelVersion = "12.10", "12.10.1" // after 12.9 as a number, before it as text

	a, err := FormatManifest([]Release{newer, older})
	require.NoError(t, err)
	b, err := FormatManifest([]Release{older, newer})
	require.NoError(t, err)
	assert.Equal(t, string(a), string(b))

	back, err := ParseManifest(a)
	require.NoError(t, err)
	assert.Equal(t, []Release{older, newer}, back)

	_, err = FormatManifest([]Release{older, older})
	assert.ErrorContains(t, err, "version 12.9 stands after 12.9")
}

func TestParseManifestRefuses(t *testing.T) {
	good := func() Release { return sampleRelease(t) }
	change := func(f func(*Release)) string {
		r := good()
		f(&r)
		return manifestOf(t, r)
	}
	tests := []struct{ name, manifest, want string }{
		{"nothing", "", "EOF"},
		{"no JSON", "releases", "invalid character"},
		{"cut", manifestOf(t, good())[:100], "unexpected EOF"},
		{"something after it", manifestOf(t, good()) + "{}", "something follows"},
		{"another type", `{"releases": 1}`, "cannot unmarshal"},
		{"unknown field", `{"releases": [], "extra": 1}`, `unknown field "extra"`},
		{"no releases", `{}`, "no releases"},
		{"empty release", `{"releases": [{}]}`, `release 0 (""): version is ""`},
		{"version twice", manifestOf(t, good(), good()), "version 12.9 stands after 12.9"},
		{"bad version", change(func(r *Release) { r.Version = "12" }), `version is "12"`},
		{"version with path", change(func(r *Release) { r.Version = "../12.9" }), `version is "../12.9"`},
		{"no wheel", change(func(r *Release) { r.Wheel = "" }), `wheel is ""`},
		{"wheel is a flag", change(func(r *Release) { r.Wheel = "-r" }), `wheel is "-r"`},
		{"wheel is an address", change(func(r *Release) { r.Wheel = "a@b:c" }), `wheel is "a@b:c"`},
		{"no wheel version", change(func(r *Release) { r.WheelVersion = "" }), `wheel_version is ""`},
		{"pre-release", change(func(r *Release) { r.WheelVersion = "12.9.1rc1" }), `wheel_version is "12.9.1rc1"`},
		{"wheel of another version", change(func(r *Release) { r.WheelVersion = "12.8.90" }), "wheel_version is 12.8.90"},
		{"bad platform", change(func(r *Release) { r.Platform = "any x" }), `platform is "any x"`},
		{"no sum", change(func(r *Release) { r.SHA256 = "" }), `sha256 is ""`},
		{"sum in capitals", change(func(r *Release) { r.SHA256 = strings.Repeat("A", 64) }), "sha256 is"},
		{"no headers", change(func(r *Release) { r.Headers = nil }), "it has no headers"},
		{"no cuda.h", change(func(r *Release) { r.Headers = r.Headers[1:] }), "it has no cuda.h"},
		{"bad sum of a header", change(func(r *Release) { r.Headers[0].SHA256 = "1" }), `sha256 of cuda.h is "1"`},
		{"header twice", change(func(r *Release) { r.Headers[1] = r.Headers[0] }), "cuda.h stands after cuda.h"},
		{"headers unsorted", change(func(r *Release) { slices.Reverse(r.Headers) }), "out of order"},
	}
	lib := func(f func(r *Release, l *Library)) string {
		r := libraryRelease(t)
		f(&r, &r.Libraries[0])
		return manifestOf(t, r)
	}
	tests = append(tests, []struct{ name, manifest, want string }{
		{"library without name", lib(func(_ *Release, l *Library) { l.Name = "" }), `name of library 0 is ""`},
		{"library is a path", lib(func(_ *Release, l *Library) { l.Name = "../lib" }), `name of library 0 is "../lib"`},
		{"library twice", lib(func(r *Release, l *Library) { r.Libraries = append(r.Libraries, *l) }), "library lib stands after lib: repeated"},
		{"library without wheel", lib(func(_ *Release, l *Library) { l.Wheel = "" }), `library lib: wheel is ""`},
		{"library without version", lib(func(_ *Release, l *Library) { l.WheelVersion = "12.9.*" }), `library lib: wheel_version is "12.9.*"`},
		{"library without platform", lib(func(_ *Release, l *Library) { l.Platform = "" }), `library lib: platform is ""`},
		{"library without sum", lib(func(_ *Release, l *Library) { l.SHA256 = "" }), `library lib: sha256 is ""`},
		{"library without headers", lib(func(_ *Release, l *Library) { l.Headers = nil }), "library lib: it has no headers"},
		{"library's header twice", lib(func(_ *Release, l *Library) { l.Headers = append(l.Headers, l.Headers[0]) }), "library lib: lib.h stands after lib.h"},
		{"library's header outside", lib(func(_ *Release, l *Library) { l.Headers[0].Path = "../lib.h" }), `library lib: path of header 0 is "../lib.h"`},
		{"library's header without sum", lib(func(_ *Release, l *Library) { l.Headers[0].SHA256 = "1" }), `library lib: sha256 of lib.h is "1"`},
		{"a header of two packages", lib(func(_ *Release, l *Library) { l.Headers[0].Path = "cuda.h" }), "sample-pkg and sample-lib both have a header cuda.h"},
	}...)
	for _, path := range []string{"", ".", "/cuda.h", "../cuda.h", "a/../cuda.h", "./cuda.h", "a//b.h", "a/", `a\b.h`, "c:b.h", "a b.h", ".hidden", "a\n.h"} {
		tests = append(tests, struct{ name, manifest, want string }{
			"path " + path, change(func(r *Release) { r.Headers[0].Path = path }), "path of header 0 is",
		})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseManifest([]byte(tt.manifest))
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// manifestOf is a manifest that is not validated.
func manifestOf(tb testing.TB, releases ...Release) string {
	data, err := json.Marshal(document{releases})
	require.NoError(tb, err)
	return string(data)
}

// FuzzManifest: an accepted manifest is valid, and formatting it is stable.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestOf(f, sampleRelease(f))))
	f.Add([]byte(manifestOf(f, sampleRelease(f), sampleRelease(f))))
	f.Add([]byte(`{"releases": [{"version": "12.9", "headers": [{"path": "../cuda.h"}]}]}`))
	f.Add([]byte(manifestOf(f, libraryRelease(f))))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		releases, err := ParseManifest(data)
		if err != nil {
			return
		}
		for _, r := range releases {
			for _, p := range r.packages() {
				for _, h := range p.Headers {
					require.True(t, safePath(h.Path), h.Path)
				}
			}
		}
		first, err := FormatManifest(releases)
		require.NoError(t, err)
		again, err := ParseManifest(first)
		require.NoError(t, err)
		require.Equal(t, releases, again)
	})
}
