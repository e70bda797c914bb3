package compile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
)

// cudaHeaders finds CUDA's own headers: beside the NVRTC that is loaded, in NVRTC itself, and then
// where NVRTC is looked for, in the same order.
type cudaHeaders struct {
	compiler *compiler
	folder   string     // for the headers in NVRTC; "" if there is none
	groups   [][]string // folders that belong together; nil before the first search
	bundled  int        // the group of the headers in NVRTC, -1 without
}

// cccl is a header of CCCL. CUDA's own headers include it, but Python has packages of CUDA that
// lack CCCL.
const cccl = "nv/target"

// find returns the folders of the first group that has a header, and if that lacks CCCL, of the
// first that has it.
func (h *cudaHeaders) find(name string) ([]string, error) {
	if h.groups == nil {
		h.search()
	}
	group, err := h.groupOf(name)
	if err != nil || group == nil || holds(group, cccl) {
		return group, err
	}
	more, err := h.groupOf(cccl)
	return slices.Concat(group, more), err
}

func (h *cudaHeaders) groupOf(name string) ([]string, error) {
	for n, group := range h.groups {
		if n == h.bundled {
			if err := h.unpack(group[0]); err != nil {
				return nil, err
			}
		}
		if holds(group, name) {
			return group, nil
		}
	}
	return nil, nil
}

func (h *cudaHeaders) search() {
	h.groups, h.bundled = [][]string{}, -1
	add := func(root string) {
		if group := headersBelow(root); len(group) > 0 {
			h.groups = append(h.groups, group)
		}
	}
	lib := filepath.Dir(h.compiler.file)
	add(filepath.Dir(lib))
	if parent := filepath.Dir(filepath.Dir(lib)); filepath.Base(parent) == "nvidia" {
		add(filepath.Dir(parent))
	}
	if h.folder != "" && nvrtc.Find("nvrtcInstallBundledHeaders") == nil {
		h.bundled = len(h.groups)
		dir := filepath.Join(h.folder, "headers-"+h.compiler.version+"-"+h.compiler.identity[:8])
		h.groups = append(h.groups, []string{dir, filepath.Join(dir, "cccl")})
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
		text, _ := os.ReadFile(filepath.Join(dir, "cuda.h"))
		if m := cudaVersion.FindSubmatch(text); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			return strings.HasPrefix(version, strconv.Itoa(n/1000)+".")
		}
	}
	return true
}

// unpack puts the headers in NVRTC into a folder, which NVRTC itself guards against other threads
// and processes. It does nothing if they are there.
func (h *cudaHeaders) unpack(dir string) error {
	runtime.LockOSThread() // the message belongs to the thread
	defer runtime.UnlockOSThread()
	var message *byte
	if err := nvrtc.NvrtcInstallBundledHeaders(cString(dir), 0, &message); err != nil {
		text := ""
		if message != nil {
			text = ": " + goString(message)
		}
		return fmt.Errorf("the headers of NVRTC cannot be unpacked to %s: %w%s", dir, err, text)
	}
	return nil
}

// looked says where headers were looked for, and what to do.
func (h *cudaHeaders) looked() string {
	var all []string
	for _, group := range h.groups {
		all = append(all, group...)
	}
	text := "CUDA's headers were looked for in " + strings.Join(all, ", ")
	if len(all) == 0 {
		text = "no headers of CUDA were found beside " + h.compiler.file + " or in a toolkit"
	}
	if h.bundled < 0 {
		text += "; get NVRTC 13.3 or newer, which has them in itself, with go run github.com/cudabind/cudabind/tools/libs get nvrtc, or install the CUDA toolkit or the Python packages nvidia-cuda-runtime-cu12 and nvidia-cuda-cccl-cu12"
	}
	return text + "; other folders belong into Options.IncludePaths. C's and C++'s own headers are not among them: include cuda/std/cstdint in place of stdint.h, for example"
}

// stamps are those of CUDA's folders. They belong to the compiler and are, like it, looked at once.
var stamps sync.Map

// stamp identifies the headers in a folder.
func (h *cudaHeaders) stamp(dir string) (string, error) {
	if h.bundled >= 0 && dir == h.groups[h.bundled][0] || strings.HasPrefix(dir, filepath.Join(h.folder, "headers-")) {
		return "", nil // NVRTC's, which its identity stands for
	}
	if s, ok := stamps.Load(dir); ok {
		return s.(string), nil
	}
	s, err := stampOf(dir)
	if err == nil {
		stamps.Store(dir, s)
	}
	return s, err
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
			k.add(file, strconv.FormatInt(info.Size(), 10), info.ModTime().String())
		}
		return err
	})
	return k.sum(), err
}
