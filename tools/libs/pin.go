package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/internal/pip"
)

// sources are the libraries that can be pinned.
var sources = []struct {
	name, wheel string
	toolkit     string   // what the package cuda-toolkit calls it, "" if that has it not
	needs       []string // libraries that it opens, or is linked with
}{
	{"cublas", "nvidia-cublas", "cublas", []string{"nvrtc"}},
	{"cudart", "nvidia-cuda-runtime", "cudart", nil},
	{"cufft", "nvidia-cufft", "cufft", []string{"nvjitlink"}},
	{"cupti", "nvidia-cuda-cupti", "cupti", nil},
	{"curand", "nvidia-curand", "curand", []string{"cudart"}},
	{"nccl", "nvidia-nccl", "", nil},
	{"nvjitlink", "nvidia-nvjitlink", "nvjitlink", nil},
	{"nvrtc", "nvidia-cuda-nvrtc", "nvrtc", nil},
}

// platforms are the tags that NVIDIA's wheels for Linux have borne, newest first.
var platforms = []string{"manylinux_2_28", "manylinux_2_27", "manylinux_2_25", "manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux2010", "manylinux_2_5", "manylinux1"}

// systems are those for which there are wheels, and what wheels call them.
var systems = map[string]string{"linux/amd64": "x86_64", "linux/arm64": "aarch64"}

// writePins writes the newest wheels of CUDA versions such as 13.5 to a file.
func writePins(ctx context.Context, out string, versions []string, stderr io.Writer) error {
	var pins []pin
	for _, version := range versions {
		for system, machine := range systems {
			fmt.Fprintf(stderr, "CUDA %s: looking for wheels for %s\n", version, system)
			var err error
			if pins, err = addPins(ctx, pins, version, system, machine); err != nil {
				return fmt.Errorf("CUDA %s: %w", version, err)
			}
		}
	}
	slices.SortFunc(pins, func(a, b pin) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Index(versions, a.CUDA)-slices.Index(versions, b.CUDA))
	})
	data, err := json.MarshalIndent(pins, "", "\t")
	if err != nil {
		return err
	}
	if _, err := parsePins(data); err != nil {
		return err
	}
	return os.WriteFile(out, append(data, '\n'), 0o644)
}

// addPins adds the wheels of a system to pins.
func addPins(ctx context.Context, pins []pin, version, system, machine string) ([]pin, error) {
	major, _, _ := strings.Cut(version, ".")
	var parts, tags []string
	for _, s := range sources {
		parts = append(parts, s.toolkit)
	}
	for _, p := range platforms {
		tags = append(tags, p+"_"+machine)
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	wheels, err := pipClient.Locate(ctx, true, tags,
		"cuda-toolkit["+strings.Join(parts, ",")+"]=="+version+".*", "nvidia-nccl-cu"+major)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		i := slices.IndexFunc(wheels, func(w pip.Wheel) bool { return w.Name == s.wheel || w.Name == s.wheel+"-cu"+major })
		if i < 0 {
			return nil, fmt.Errorf("pip found no %s for %s", s.wheel, system)
		}
		w := wheels[i]
		f, err := fileOf(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.File(), err)
		}
		j := slices.IndexFunc(pins, func(p pin) bool { return p.Name == s.name && p.CUDA == version })
		if j < 0 {
			j = len(pins)
			pins = append(pins, pin{s.name, version, w.Name, w.Version, s.needs, map[string]file{}})
		}
		if pins[j].Version != w.Version {
			return nil, fmt.Errorf("%s is %s for one system and %s for another", w.Name, pins[j].Version, w.Version)
		}
		pins[j].Files[system] = f
	}
	return pins, nil
}

// fileOf says how to get a wheel: its first platform tag is good enough for pip.
func fileOf(ctx context.Context, w pip.Wheel) (file, error) {
	tags := strings.TrimSuffix(w.File()[strings.LastIndex(w.File(), "-")+1:], ".whl")
	tag, _, _ := strings.Cut(tags, ".")
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, w.URL, nil)
	if err != nil {
		return file{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return file{}, err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return file{}, fmt.Errorf("the server answers %s", resp.Status)
	}
	const mb = 1e6
	return file{tag, int((resp.ContentLength + mb/2) / mb), w.SHA256}, nil
}
