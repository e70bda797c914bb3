package headers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/internal/pip"
)

// platforms are the tags that NVIDIA's packages for x86-64 Linux have borne,
// newest first. The headers are the same under all, but one version may have
// two files: pip takes the one whose tag stands first.
var platforms = []string{
	"manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_25_x86_64", "manylinux_2_17_x86_64",
	"manylinux2014_x86_64", "manylinux_2_12_x86_64", "manylinux2010_x86_64",
	"manylinux1_x86_64",
}

// part is a part of CUDA that has a pip package of its own.
type part struct {
	library string   // its name, none for the runtime
	wheel   string   // the pip package; up to CUDA 12 -cu12 follows
	roots   []string // the headers that the generator parses; what they include is pinned with them
	since   string   // the first CUDA version whose library can be bound, "" for the oldest pinned one
	number  numbering
}

// A numbering says how the versions of a package follow from CUDA's.
type numbering int

const (
	asCUDA  numbering = iota // they begin with CUDA's
	toolkit                  // the package cuda-toolkit of the CUDA version names it
	newest                   // they do not follow: the newest for CUDA's major version
)

// runtimePart holds the headers of the driver too, and those of types that
// libraries share.
var runtimePart = part{"", "nvidia-cuda-runtime", []string{mainHeader, "cuda_runtime_api.h", "cudaTypedefs.h", "library_types.h"}, "", asCUDA}

// optional are further headers of driver and runtime. They are pinned where the
// runtime's package has them.
var optional = []string{
	"cudaProfilerTypedefs.h", "cudaGL.h", "cudaGLTypedefs.h", "cudaEGL.h", "cudaEGLTypedefs.h", "cudaVDPAU.h", "cudaVDPAUTypedefs.h",
	"cuda_gl_interop.h", "cuda_egl_interop.h", "cuda_vdpau_interop.h",
}

// libraries are sorted by name.
var libraries = []part{
	{"cublas", "nvidia-cublas", []string{"cublas_v2.h", "cublasLt.h"}, "12.0", toolkit},
	{"cufft", "nvidia-cufft", []string{"cufftXt.h"}, "12.0", toolkit},
	{"curand", "nvidia-curand", []string{"curand.h"}, "12.0", toolkit},
	{"nccl", "nvidia-nccl", []string{"nccl.h"}, "12.9", newest},
	{"nvjitlink", "nvidia-nvjitlink", []string{"nvJitLink.h"}, "12.3", asCUDA}, // before, it exports no plain names and does not tell its version
	{"nvml", "nvidia-nvml-dev", []string{"nvml.h"}, "12.0", asCUDA},
	{"nvrtc", "nvidia-cuda-nvrtc", []string{"nvrtc.h"}, "", asCUDA},
	{"profiler", "nvidia-cuda-profiler-api", []string{"cudaProfiler.h", "cuda_profiler_api.h"}, "", asCUDA}, // of driver and runtime
}

// wheelOf is the pip package of the part for a CUDA version.
func (p part) wheelOf(version string) string {
	if major, _ := splitVersion(version); major <= 12 || p.number == newest {
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
		if errors.Is(err, pip.ErrNotPublished) {
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
	requirement, err := p.requirement(ctx, version)
	if err != nil {
		return Package{}, err
	}
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
	files, err := pinned(a, withOptional(p.roots, a))
	if err != nil {
		return Package{}, fmt.Errorf("%s: %w", w.name, err)
	}
	return Package{Wheel: name, WheelVersion: number, Platform: platform, SHA256: w.sha256, Headers: files}, nil
}

// withOptional adds the optional headers that a folder has.
func withOptional(roots []string, folder includeFolder) []string {
	roots = slices.Clone(roots)
	for _, h := range optional {
		if folder.has(h) {
			roots = append(roots, h)
		}
	}
	return roots
}

// requirement is what pip is asked for.
func (p part) requirement(ctx context.Context, version string) (string, error) {
	name := p.wheelOf(version)
	switch p.number {
	case newest:
		return name, nil
	case asCUDA:
		return name + "==" + version + ".*", nil
	}
	all := fmt.Sprintf("cuda-toolkit[%s]==%s.*", p.library, version)
	wheels, err := pipClient.Locate(ctx, true, platforms, all)
	if err != nil { // the runtime was found, so that pip works
		return "", errors.Join(err, pip.ErrNotPublished)
	}
	for _, w := range wheels {
		if w.Name == name {
			return name + "==" + w.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not name %s: %w", all, name, pip.ErrNotPublished)
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
	has := platformsOf(w.name)
	i := slices.IndexFunc(platforms, func(p string) bool { return slices.Contains(has, p) })
	if i < 0 {
		return "", "", fmt.Errorf("%s is for none of %s", w.name, strings.Join(platforms, ", "))
	}
	return version, platforms[i], nil
}

// platformsOf gives the platforms of a wheel, from the name of its file.
func platformsOf(file string) []string {
	tags := file[strings.LastIndexByte(file, '-')+1:]
	return strings.Split(strings.TrimSuffix(tags, ".whl"), ".")
}
