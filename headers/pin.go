package headers

import (
	"context"
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
	"manylinux2014_x86_64", "manylinux1_x86_64",
}

// Pin downloads the newest patch of a CUDA version such as "13.6", which the
// manifest need not know yet, and returns what the manifest should say of it.
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
	r := Release{Version: version, Wheel: wheelOf(version)}
	say(progress, "CUDA %s: downloading the newest %s", version, r.Wheel)
	w, err := download(ctx, r.Wheel+"=="+version+".*", platforms...)
	if err != nil {
		return Release{}, err
	}
	r.SHA256 = sum(w.data)
	if r.WheelVersion, r.Platform, err = w.tags(); err != nil {
		return Release{}, err
	}
	a, err := openArchive(w)
	if err != nil {
		return Release{}, err
	}
	main, err := a.read(mainHeader)
	if err != nil {
		return Release{}, err
	}
	if err := checkVersion(main, version); err != nil {
		return Release{}, fmt.Errorf("%s in %s: %w", mainHeader, w.name, err)
	}
	if r.Headers, err = pinned(a); err != nil {
		return Release{}, err
	}
	return r, r.validate()
}

// wheelOf is the pip package of a CUDA version. Up to 12 its name bears the
// major version.
func wheelOf(version string) string {
	if major, _ := splitVersion(version); major <= 12 {
		return fmt.Sprintf("nvidia-cuda-runtime-cu%d", major)
	}
	return "nvidia-cuda-runtime"
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
