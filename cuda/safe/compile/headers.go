package compile

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
)

// cudaHeaders finds CUDA's own headers: beside the NVRTC that is loaded, in NVRTC itself, and then
// where NVRTC is looked for, in the same order.
type cudaHeaders struct {
	compiler  *compiler
	folder    string     // of the cache, for the headers in NVRTC; "" if there is none
	temporary string     // where they are if not there
	list      string     // of the headers in NVRTC, when they were last whole
	failed    error      // why they are nowhere
	groups    [][]string // folders that belong together; nil before the first search
	bundled   int        // the group of the headers in NVRTC, -1 without; it is nil before they are unpacked
}

// cccl is a header of CCCL. CUDA's own headers include it, but Python has packages of CUDA that
// lack CCCL.
const cccl = "nv/target"

// find returns the folders of the first group that has a header.
func (h *cudaHeaders) find(name string) []string {
	if h.groups == nil {
		h.search()
	}
	for n := range h.groups {
		if n == h.bundled && h.groups[n] == nil && h.failed == nil && h.mayHold(name) {
			h.groups[n], h.failed = h.unpacked()
		}
		if holds(h.groups[n], name) {
			return h.groups[n]
		}
	}
	return nil
}

func (h *cudaHeaders) search() {
	h.groups, h.bundled = [][]string{}, -1
	add := func(root string) {
		if group := headersBelow(root); len(group) > 0 {
			h.groups = append(h.groups, group)
		}
	}
	lib := filepath.Dir(h.compiler.file)
	if around := filepath.Dir(lib); filepath.Base(around) == "lib" {
		add(filepath.Dir(around)) // of Debian, whose libraries are in lib/x86_64-linux-gnu
	}
	add(filepath.Dir(lib))
	if parent := filepath.Dir(filepath.Dir(lib)); filepath.Base(parent) == "nvidia" {
		add(filepath.Dir(parent))
	}
	if nvrtc.Find("nvrtcInstallBundledHeaders") == nil {
		h.bundled = len(h.groups)
		h.groups = append(h.groups, nil)
	}
	for _, root := range nvrtc.Folders() {
		if group := headersBelow(root); len(group) > 0 && fits(group, h.compiler.version) {
			h.groups = append(h.groups, group)
		}
	}
}

// target is the folder of a toolkit, also of conda, for this architecture.
var target = map[string]string{"amd64": "targets/x86_64-linux", "arm64": "targets/sbsa-linux"}[runtime.GOARCH]

// headersBelow returns the folders of CUDA's headers in a toolkit, or in the site-packages of
// Python, where NVIDIA's packages have one each up to CUDA 12.
func headersBelow(root string) (all []string) {
	for _, pattern := range []string{"include", filepath.Join(target, "include"), "nvidia/cu*/include", "nvidia/*/include"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, dir := range found {
			if pattern == "include" && !hasHeaders(dir) {
				continue // of something else
			}
			all = append(all, dir)
			if cccl := filepath.Join(dir, "cccl"); exists(cccl) {
				all = append(all, cccl)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return nil
}

// hasHeaders tells whether a folder has CUDA's headers.
func hasHeaders(dir string) bool {
	return exists(filepath.Join(dir, "cuda_fp16.h")) || exists(filepath.Join(dir, "cuda/std")) || exists(filepath.Join(dir, "cooperative_groups.h"))
}

// mixed tells whether a folder has C's headers, too, as /usr/include has, which NVRTC cannot compile.
func mixed(dir string) bool { return exists(filepath.Join(dir, "features.h")) }

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// holds tells whether one of the folders has a file.
func holds(folders []string, name string) bool {
	for _, dir := range folders {
		if info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

var cudaVersion = regexp.MustCompile(`(?m)^#define CUDA_VERSION (\d+)`)

// fits tells whether headers are of NVRTC's major version, or do not tell.
func fits(group []string, version string) bool {
	for _, dir := range group {
		text, _, _ := readFile(filepath.Join(dir, "cuda.h"), maxText)
		if m := cudaVersion.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1])
			return strings.HasPrefix(version, strconv.Itoa(n/1000)+".")
		}
	}
	return true
}

// looked says where headers were looked for, and what to do.
func (h *cudaHeaders) looked() string {
	var all []string
	for n, group := range h.groups {
		if n == h.bundled && h.failed == nil {
			group = []string{"NVRTC itself"}
		}
		all = append(all, group...)
	}
	text := "CUDA's headers were looked for in " + strings.Join(all, ", ")
	if len(all) == 0 {
		text = "no headers of CUDA were found beside " + h.compiler.file + " or in a toolkit"
	}
	if h.failed != nil {
		text += "; " + h.failed.Error()
	} else if h.bundled < 0 {
		text += "; get NVRTC 13.3 or newer, which has them in itself, with go run github.com/cudabind/cudabind/tools/libs@latest get nvrtc, or install the CUDA toolkit or the Python packages nvidia-cuda-runtime-cu12 and nvidia-cuda-cccl-cu12"
	}
	return text + "; name other folders in Options.IncludePaths"
}

// stampOf hashes the names, sizes and times of all files in a folder.
func stampOf(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir) // WalkDir would not follow it
	if err != nil {
		return "", err
	}
	k := key{sha256.New()}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a link to nowhere
		}
		if err == nil {
			k.add(file, strconv.FormatInt(info.Size(), 10), info.ModTime().String(), strconv.FormatInt(changed(info), 10))
		}
		return err
	})
	return k.sum(), err
}
