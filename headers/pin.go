package headers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// platforms are the tags that NVIDIA's packages for x86-64 Linux have borne,
// newest first. The headers are the same under all, but one version may have
// two files: pip takes the one whose tag stands first.
var platforms = []string{
	"manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64",
	"manylinux2014_x86_64", "manylinux_2_12_x86_64", "manylinux2010_x86_64",
	"manylinux1_x86_64",
}

// part is a part of CUDA that has a pip package of its own.
type part struct {
	library string   // its name, none for the runtime
	wheel   string   // the pip package; up to CUDA 12 -cu12 follows
	roots   []string // the headers that the generator parses; what they include is pinned with them
	since   string   // the first CUDA version whose library can be bound, "" for the oldest pinned one
}

// runtimePart holds the headers of the driver too, and those of types that
// libraries share.
var runtimePart = part{"", "nvidia-cuda-runtime", []string{mainHeader, "cuda_runtime_api.h", "cudaTypedefs.h"}, ""}

// libraries are sorted by name.
var libraries = []part{
	{"nvjitlink", "nvidia-nvjitlink", []string{"nvJitLink.h"}, "12.3"}, // before, it exports no plain names and does not tell its version
	{"nvrtc", "nvidia-cuda-nvrtc", []string{"nvrtc.h"}, ""},
}

// wheelOf is the pip package of the part for a CUDA version.
func (p part) wheelOf(version string) string {
	if major, _ := splitVersion(version); major <= 12 {
		return fmt.Sprintf("%s-cu%d", p.wheel, major)
	}
	return p.wheel
}

// Pin finds the newest patch of a CUDA version such as "13.6", which the
// manifest need not know yet, and returns what the manifest should say of it.
// It says on progress which libraries the version does not have.
func Pin(ctx context.Context, version string, progress io.Writer) (Release, error) {
	if !versionPattern.MatchString(version) {
		return Release{}, fmt.Errorf("%q is no CUDA version such as 13.5", version)
	}
	r, err := pin(ctx, version, progress)
	if err != nil {
		return Release{}, fmt.Errorf("CUDA %s: %w", version, err)
	}
	return r, nil
}

func pin(ctx context.Context, version string, progress io.Writer) (Release, error) {
	runtime, err := runtimePart.pin(ctx, version, progress)
	if err != nil {
		return Release{}, err
	}
	r := Release{Version: version, Package: runtime}
	for _, l := range libraries {
		if compareVersions(version, l.since) < 0 {
			say(progress, "CUDA %s: left out %s, which can be bound since CUDA %s", version, l.library, l.since)
			continue
		}
		p, err := l.pin(ctx, version, progress)
		if errors.Is(err, errNotPublished) {
			say(progress, "CUDA %s: left out %s, since pip finds no %s %s.*", version, l.library, l.wheelOf(version), version)
			continue
		}
		if err != nil {
			return Release{}, fmt.Errorf("%s: %w", l.library, err)
		}
		r.Libraries = append(r.Libraries, Library{l.library, p})
	}
	return r, r.validate()
}

// pin gives the newest package of the part for a CUDA version.
func (p part) pin(ctx context.Context, version string, progress io.Writer) (Package, error) {
	name := p.wheelOf(version)
	requirement := name + "==" + version + ".*"
	say(progress, "CUDA %s: looking for the newest %s", version, name)
	w, err := open(ctx, locate(ctx, requirement)[name], progress, requirement, platforms...)
	if err != nil {
		return Package{}, err
	}
	number, platform, err := w.tags()
	if err != nil {
		return Package{}, err
	}
	a, err := openArchive(w, p.roots[0])
	if err != nil {
		return Package{}, err
	}
	if a.has(mainHeader) {
		if err := checkVersion(a, version); err != nil {
			return Package{}, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	files, err := pinned(a, p.roots)
	if err != nil {
		return Package{}, fmt.Errorf("%s: %w", w.name, err)
	}
	return Package{name, number, platform, w.sha256, files}, nil
}

// tags reads the wheel's file name, NAME-VERSION-PYTHON-ABI-PLATFORM.whl. Of
// several platforms, with dots between them, it gives the one pip preferred.
func (w wheel) tags() (version, platform string, err error) {
	parts := strings.Split(strings.TrimSuffix(w.name, ".whl"), "-")
	if len(parts) != 5 {
		return "", "", fmt.Errorf("%s does not have the name of a wheel", w.name)
	}
	version = parts[1]
	if !wheelVersionPattern.MatchString(version) {
		return "", "", fmt.Errorf("%s is a pre-release, and no release is published", w.name)
	}
	has := strings.Split(parts[4], ".")
	i := slices.IndexFunc(platforms, func(p string) bool { return slices.Contains(has, p) })
	if i < 0 {
		return "", "", fmt.Errorf("%s is for none of %s", w.name, strings.Join(platforms, ", "))
	}
	return version, platforms[i], nil
}
