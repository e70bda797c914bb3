package headers

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/cudabind/cudabind/internal/pip"
)

// requestedParts are the libraries that are bound on request: their headers are pinned for
// the newest CUDA version of each major alone, and fetched one library at a time.
var requestedParts = []part{
	{"cublas", "nvidia-cublas", []string{"cublasXt.h"}, "", toolkit},
	{"cudnn", "nvidia-cudnn", []string{"cudnn.h"}, "", newest},
	{"cufile", "nvidia-cufile", []string{"cufile.h"}, "", toolkit},
	{"cupti", "nvidia-cuda-cupti", []string{"cupti.h"}, "", asCUDA},
	{"cusolver", "nvidia-cusolver", []string{"cusolverDn.h", "cusolverSp.h", "cusolverMg.h"}, "", toolkit},
	{"cusparse", "nvidia-cusparse", []string{"cusparse.h"}, "", toolkit},
	{"cusparselt", "nvidia-cusparselt", []string{"cusparseLt.h"}, "", newest},
	{"cutensor", "cutensor", []string{"cutensor.h"}, "", newest},
	{"cutensornet", "cutensornet", []string{"cutensornet.h"}, "", newest},
	{"npp", "nvidia-npp", []string{"npp.h"}, "", toolkit},
	{"nvfatbin", "nvidia-nvfatbin", []string{"nvFatbin.h"}, "", toolkit},
	{"nvjpeg", "nvidia-nvjpeg", []string{"nvjpeg.h"}, "", toolkit},
	{"nvvm", "nvidia-cuda-nvcc", []string{"nvvm.h"}, "", asCUDA}, // in the compiler's package, until it gets one of its own
	{"nvvm", "nvidia-nvvm", []string{"nvvm.h"}, "13.0", toolkit},
}

// replaces tells whether a library of p is in p, and no longer in the part before.
func (p part) replaces(before part, version string) bool {
	return p.library == before.library && compareVersions(version, p.since) >= 0
}

// Requested has the pinned libraries that are bound on request, for a CUDA version.
type Requested struct {
	CUDA      string    `json:"cuda"`
	Libraries []Library `json:"libraries"` // sorted by name
}

//go:embed requested.json
var embeddedRequested []byte

var requested = sync.OnceValues(func() ([]Requested, error) { return parseRequested(embeddedRequested) })

func parseRequested(data []byte) ([]Requested, error) {
	var all []Requested
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("manifest of headers on request: %w", err)
	}
	for i, r := range all {
		if !versionPattern.MatchString(r.CUDA) || i > 0 && compareVersions(all[i-1].CUDA, r.CUDA) >= 0 {
			return nil, fmt.Errorf("manifest of headers on request: CUDA version %d is %q", i, r.CUDA)
		}
		for j, l := range r.Libraries {
			if !libraryPattern.MatchString(l.Name) || j > 0 && r.Libraries[j-1].Name >= l.Name {
				return nil, fmt.Errorf("manifest of headers on request: library %d of CUDA %s is %q", j, r.CUDA, l.Name)
			}
			if err := l.validate(); err != nil {
				return nil, fmt.Errorf("manifest of headers on request: CUDA %s: library %s: %w", r.CUDA, l.Name, err)
			}
		}
	}
	return all, nil
}

// LookupRequested is [Lookup] for a release with the headers of a library that is bound on
// request: the newest one, or that of a CUDA version such as 12.9 or 12, or that whose
// library's version begins with number.
func LookupRequested(library, cuda, number string) (Release, error) {
	all, err := requested()
	if err != nil {
		return Release{}, err
	}
	var known []string
	for _, r := range slices.Backward(all) {
		i := slices.IndexFunc(r.Libraries, func(l Library) bool { return l.Name == library })
		if i < 0 {
			continue
		}
		l := r.Libraries[i]
		known = append(known, l.WheelVersion+" for CUDA "+r.CUDA)
		if begins(r.CUDA, cuda) && begins(l.WheelVersion, number) {
			release, err := Lookup(r.CUDA)
			return release.with(l), err
		}
	}
	return Release{}, fmt.Errorf("no headers of %s of this version are pinned; those of %s are", library, strings.Join(known, " and "))
}

// WithRequested adds the headers of a library that is bound on request, of the same CUDA version.
func (r Release) WithRequested(library string) (Release, error) {
	all, err := requested()
	if err != nil {
		return Release{}, err
	}
	for _, q := range all {
		for _, l := range q.Libraries {
			if l.Name == library && q.CUDA == r.Version {
				return r.with(l), nil
			}
		}
	}
	return Release{}, fmt.Errorf("no headers of %s are pinned for CUDA %s", library, r.Version)
}

// begins tells whether a version begins with the numbers of prefix, which may be empty.
func begins(version, prefix string) bool {
	return prefix == "" || version == prefix || strings.HasPrefix(version, prefix+".")
}

// RequestedReleases returns the CUDA versions for which libraries are bound on request, with
// all of these.
func RequestedReleases() ([]Release, error) {
	all, err := requested()
	if err != nil {
		return nil, err
	}
	var releases []Release
	for _, r := range all {
		release, err := Lookup(r.CUDA)
		if err != nil {
			return nil, err
		}
		for _, l := range r.Libraries {
			release = release.with(l)
		}
		releases = append(releases, release)
	}
	return releases, nil
}

// with adds a library's headers, less those that the release has already.
func (r Release) with(l Library) Release {
	has := map[File]bool{}
	for _, p := range r.packages() {
		for _, f := range p.Headers {
			has[f] = true
		}
	}
	l.Headers = slices.DeleteFunc(slices.Clone(l.Headers), func(f File) bool { return has[f] })
	l.requested = true
	if len(l.Headers) > 0 {
		r.Libraries = append(r.Libraries, l)
	}
	return r
}

// PinRequested finds the newest patches of the libraries on request for a CUDA version. It
// says on progress which the version does not have.
func PinRequested(ctx context.Context, version string, progress io.Writer) (Requested, error) {
	if !versionPattern.MatchString(version) {
		return Requested{}, fmt.Errorf("%q is no CUDA version such as 13.5", version)
	}
	r := Requested{CUDA: version}
	for i, l := range requestedParts {
		if compareVersions(version, l.since) < 0 || i+1 < len(requestedParts) && requestedParts[i+1].replaces(l, version) {
			continue
		}
		p, err := l.pin(ctx, version, progress)
		if errors.Is(err, pip.ErrNotPublished) {
			say(progress, "CUDA %s: left out %s, since pip finds no %s for it", version, l.library, l.wheelOf(version))
			continue
		}
		if err != nil {
			return Requested{}, fmt.Errorf("CUDA %s: %s: %w", version, l.library, err)
		}
		r.Libraries = append(r.Libraries, Library{l.library, p})
	}
	return r, nil
}

// FormatRequested adds r to the manifest in data, in place of an older CUDA version of the
// same major.
func FormatRequested(data []byte, r Requested) ([]byte, error) {
	all, err := parseRequested(data)
	if err != nil {
		return nil, err
	}
	major, _ := splitVersion(r.CUDA)
	all = slices.DeleteFunc(all, func(o Requested) bool {
		other, _ := splitVersion(o.CUDA)
		return other == major
	})
	all = append(all, r)
	slices.SortFunc(all, func(a, b Requested) int { return compareVersions(a.CUDA, b.CUDA) })
	out, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("manifest of headers on request: %w", err)
	}
	return append(out, '\n'), nil
}
