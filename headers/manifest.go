package headers

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Release is one CUDA version: the pip package of its runtime, which holds
// cuda.h too, and those of its libraries.
type Release struct {
	Version string `json:"version"` // CUDA version, as in "12.9"
	Package
	Libraries []Library `json:"libraries,omitzero"` // sorted by name
}

// Library is a library of a CUDA version with a pip package of its own. Its
// headers lie in the same include folder as those of the runtime.
type Library struct {
	Name string `json:"name"` // as in "nvrtc"
	Package
}

// Package is a pip package and the headers that are taken from it.
type Package struct {
	Wheel        string `json:"wheel"`         // name of the pip package
	WheelVersion string `json:"wheel_version"` // version of the package: the pinned patch
	Platform     string `json:"platform"`      // platform tag to ask pip for; the headers are the same on all
	SHA256       string `json:"sha256"`        // of the package's file
	Headers      []File `json:"headers"`       // sorted by path

	requested bool // set by Release.with: fetching the version alone does not get it
}

// File is one header.
type File struct {
	Path   string `json:"path"` // slash-separated, relative to the include folder
	SHA256 string `json:"sha256"`
}

//go:embed manifest.json
var embedded []byte

var manifest = sync.OnceValues(func() ([]Release, error) { return ParseManifest(embedded) })

// Releases returns the supported CUDA versions, oldest first.
func Releases() []Release {
	releases, _ := manifest() // a test proves that the embedded manifest is valid
	releases = slices.Clone(releases)
	for i := range releases {
		r := &releases[i]
		r.Headers = slices.Clone(r.Headers)
		r.Libraries = slices.Clone(r.Libraries)
		for j := range r.Libraries {
			r.Libraries[j].Headers = slices.Clone(r.Libraries[j].Headers)
		}
	}
	return releases
}

// packages are all that the release's headers come from, the runtime's first.
func (r Release) packages() []Package {
	packages := []Package{r.Package}
	for _, l := range r.Libraries {
		packages = append(packages, l.Package)
	}
	return packages
}

// Having is the release without the libraries that have none of these headers. Fetching it takes less.
func (r Release) Having(headers []string) Release {
	r.Libraries = slices.DeleteFunc(slices.Clone(r.Libraries), func(l Library) bool {
		return !slices.ContainsFunc(l.Headers, func(f File) bool { return slices.Contains(headers, f.Path) })
	})
	return r
}

// Lookup returns the release of a CUDA version such as "12.9".
func Lookup(version string) (Release, error) {
	if _, err := manifest(); err != nil {
		return Release{}, err
	}
	var known []string
	for _, r := range Releases() {
		if r.Version == version {
			return r, nil
		}
		known = append(known, r.Version)
	}
	return Release{}, fmt.Errorf("CUDA %s is not a known version; known are %s", version, strings.Join(known, ", "))
}

// document is the manifest's JSON.
type document struct {
	Releases []Release `json:"releases"`
}

// ParseManifest reads and validates a manifest.
func ParseManifest(data []byte) ([]Release, error) {
	var doc document
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("manifest of headers: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("manifest of headers: something follows its end")
	}
	if err := validate(doc.Releases); err != nil {
		return nil, fmt.Errorf("manifest of headers: %w", err)
	}
	return doc.Releases, nil
}

// FormatManifest is the inverse of [ParseManifest]. The order of the releases
// does not matter; equal releases give equal bytes.
func FormatManifest(releases []Release) ([]byte, error) {
	sorted := slices.SortedFunc(slices.Values(releases), func(a, b Release) int {
		return compareVersions(a.Version, b.Version)
	})
	if err := validate(sorted); err != nil {
		return nil, fmt.Errorf("manifest of headers: %w", err)
	}
	data, err := json.MarshalIndent(document{sorted}, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("manifest of headers: %w", err)
	}
	return append(data, '\n'), nil
}

// The patterns are strict since their values become arguments of pip and
// names of files.
var (
	libraryPattern      = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	versionPattern      = regexp.MustCompile(`^[1-9][0-9]{0,3}\.(0|[1-9][0-9]{0,3})$`)
	wheelPattern        = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	wheelVersionPattern = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)
	platformPattern     = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	sumPattern          = regexp.MustCompile(`^[0-9a-f]{64}$`)
	pathPattern         = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*$`)
)

func validate(releases []Release) error {
	if len(releases) == 0 {
		return errors.New("it has no releases")
	}
	for i, r := range releases {
		if err := r.validate(); err != nil {
			return fmt.Errorf("release %d (%q): %w", i, r.Version, err)
		}
		if i > 0 && compareVersions(releases[i-1].Version, r.Version) >= 0 {
			return fmt.Errorf("version %s stands after %s: repeated or out of order", r.Version, releases[i-1].Version)
		}
	}
	return nil
}

func (r Release) validate() error {
	if !versionPattern.MatchString(r.Version) {
		return fmt.Errorf("version is %q", r.Version)
	}
	if err := r.Package.validate(); err != nil {
		return err
	}
	if !strings.HasPrefix(r.WheelVersion, r.Version+".") {
		return fmt.Errorf("wheel_version is %s", r.WheelVersion)
	}
	if !slices.ContainsFunc(r.Headers, func(f File) bool { return f.Path == mainHeader }) {
		return errors.New("it has no " + mainHeader)
	}
	for i, l := range r.Libraries {
		if !libraryPattern.MatchString(l.Name) {
			return fmt.Errorf("name of library %d is %q", i, l.Name)
		}
		if i > 0 && r.Libraries[i-1].Name >= l.Name {
			return fmt.Errorf("library %s stands after %s: repeated or out of order", l.Name, r.Libraries[i-1].Name)
		}
		if err := l.validate(); err != nil {
			return fmt.Errorf("library %s: %w", l.Name, err)
		}
	}
	return r.validatePaths()
}

// validatePaths: all packages share one include folder.
func (r Release) validatePaths() error {
	from := map[string]string{}
	for _, p := range r.packages() {
		for _, f := range p.Headers {
			if other, taken := from[f.Path]; taken {
				return fmt.Errorf("%s and %s both have a header %s", other, p.Wheel, f.Path)
			}
			from[f.Path] = p.Wheel
		}
	}
	return nil
}

func (p Package) validate() error {
	for _, field := range []struct {
		name, value string
		pattern     *regexp.Regexp
	}{
		{"wheel", p.Wheel, wheelPattern},
		{"wheel_version", p.WheelVersion, wheelVersionPattern},
		{"platform", p.Platform, platformPattern},
		{"sha256", p.SHA256, sumPattern},
	} {
		if !field.pattern.MatchString(field.value) {
			return fmt.Errorf("%s is %q", field.name, field.value)
		}
	}
	if len(p.Headers) == 0 {
		return errors.New("it has no headers")
	}
	for i, f := range p.Headers {
		if !fs.ValidPath(f.Path) || !pathPattern.MatchString(f.Path) {
			return fmt.Errorf("path of header %d is %q", i, f.Path)
		}
		if !sumPattern.MatchString(f.SHA256) {
			return fmt.Errorf("sha256 of %s is %q", f.Path, f.SHA256)
		}
		if i > 0 && p.Headers[i-1].Path >= f.Path {
			return fmt.Errorf("%s stands after %s: repeated or out of order", f.Path, p.Headers[i-1].Path)
		}
	}
	return nil
}

func compareVersions(a, b string) int {
	aMajor, aMinor := splitVersion(a)
	bMajor, bMinor := splitVersion(b)
	return cmp.Or(cmp.Compare(aMajor, bMajor), cmp.Compare(aMinor, bMinor))
}

// splitVersion gives 12 and 9 for "12.9", and 0 for a part that is no number.
func splitVersion(version string) (major, minor int) {
	a, b, _ := strings.Cut(version, ".")
	major, _ = strconv.Atoi(a)
	minor, _ = strconv.Atoi(b)
	return major, minor
}
