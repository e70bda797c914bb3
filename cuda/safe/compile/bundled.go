package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
)

// NVRTC from 13.3 on has CUDA's headers in itself, and unpacks them into a folder. They are kept in
// the folder of the cache. Where there is none, or it cannot take them, each compilation that needs
// headers unpacks them into a temporary folder of its own.

const (
	contents = ".cudabind-contents" // lists the headers with their sizes and times
	marker   = ".nvrtc_headers_version"
)

// inNVRTC are the names of the headers in an NVRTC, by its identity, from the first time that they
// were unpacked.
var inNVRTC sync.Map

// mayHold tells whether a header may be in NVRTC, as far as it is known without unpacking.
func (h *cudaHeaders) mayHold(name string) bool {
	names, ok := inNVRTC.Load(h.compiler.identity)
	return !ok || names.(map[string]bool)[path.Clean(name)]
}

// unpacked unpacks the headers in NVRTC and returns their folders.
func (h *cudaHeaders) unpacked() ([]string, error) {
	dir, err := "", fs.ErrNotExist
	if h.folder != "" {
		if dir, err = headersFolder(h.folder, h.compiler.version); err == nil {
			h.list, err = keep(dir)
		}
	}
	if err != nil {
		if h.temporary, err = temporaryFolder(); err == nil {
			dir = h.temporary
			h.list, err = unpack(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	if _, ok := inNVRTC.Load(h.compiler.identity); !ok {
		names := map[string]bool{}
		for text := range strings.Lines(h.list) {
			names[strings.TrimPrefix(nameIn(text), "cccl/")] = true
		}
		inNVRTC.Store(h.compiler.identity, names)
	}
	return []string{dir, filepath.Join(dir, "cccl")}, nil
}

// headersFolder is the folder for the headers in NVRTC in that of the cache. It is the same for all files with the same
// headers, whatever their times.
func headersFolder(cache, version string) (string, error) {
	var info nvrtc.NvrtcBundledHeadersInfo
	err := nvrtc.NvrtcGetBundledHeadersInfo(&info, nil)
	name := fmt.Sprintf("headers-%s-%d-%d-%d", version, info.NumFiles, info.UncompressedSize, info.CompressedSize)
	return filepath.Join(cache, name), err
}

// close removes the temporary folder.
func (h *cudaHeaders) close() {
	if h.temporary != "" {
		os.RemoveAll(h.temporary)
	}
}

// mending is for one goroutine at a time.
var mending sync.Mutex

// mend unpacks the headers in the cache's folder again if one is missing or was changed. It tells
// whether they are others than before, also by another goroutine.
func (h *cudaHeaders) mend() bool {
	if h.groups == nil || h.bundled < 0 || h.temporary != "" || h.groups[h.bundled] == nil {
		return false
	}
	mending.Lock()
	defer mending.Unlock()
	dir, before := h.groups[h.bundled][0], h.list
	list, _, err := readFile(filepath.Join(dir, contents), maxText)
	if err == nil && whole(dir, list) {
		h.list = list
		return list != before
	}
	err = os.Remove(filepath.Join(dir, marker)) // NVRTC believes it
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(filepath.Join(dir, contents))
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		h.list, err = keep(dir)
	}
	return err == nil
}

// temporaryFolder makes a folder of our own that others cannot replace.
func temporaryFolder() (string, error) {
	parent := os.TempDir()
	if secure() && runtime.GOOS != "windows" {
		parent = "/tmp"
	}
	info, err := os.Stat(parent)
	if err == nil && (!steady(info) || shared(info)) {
		err = fmt.Errorf("%w: others can replace what is in %s", fs.ErrPermission, parent)
	}
	if err != nil {
		return "", fmt.Errorf("the headers of NVRTC cannot be unpacked: %w: set Options.CacheFolder, or TMPDIR", err)
	}
	return os.MkdirTemp(parent, "cudabind-headers-")
}

// keep makes a folder hold all headers, and returns the list of them.
func keep(dir string) (string, error) {
	file := filepath.Join(dir, contents)
	if list, _, err := readFile(file, maxText); err == nil {
		return list, install(dir)
	}
	list, err := unpack(dir)
	if err != nil {
		return "", err
	}
	temporary := filepath.Join(dir, temporaryFile())
	if err = os.WriteFile(temporary, []byte(list), 0o600); err == nil {
		err = os.Rename(temporary, file)
	}
	return list, err
}

// unpack lets NVRTC unpack its headers into a folder, and returns the list of them. If some are
// missing although NVRTC believes that they are there, it does so again.
func unpack(dir string) (list string, err error) {
	var info nvrtc.NvrtcBundledHeadersInfo
	if err := nvrtc.NvrtcGetBundledHeadersInfo(&info, nil); err != nil {
		return "", err
	}
	for range 2 {
		if err = install(dir); err != nil {
			return "", err
		}
		list, err = listFolder(dir)
		if err != nil || strings.Count(list, "\n") >= int(info.NumFiles) {
			return list, err
		}
		if err := os.Remove(filepath.Join(dir, marker)); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: NVRTC has unpacked some of its headers to %s only", fs.ErrNotExist, dir)
}

// listFolder lists the files of a folder, one a line.
func listFolder(dir string) (string, error) {
	var text strings.Builder
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			text.WriteString(line(filepath.ToSlash(file[len(dir)+1:]), info))
		}
		return err
	})
	return text.String(), err
}

// line is what a list says of a file, and nameIn its name.
func line(name string, info fs.FileInfo) string {
	return fmt.Sprintf("%d %d %s\n", info.Size(), info.ModTime().UnixNano(), name)
}

func nameIn(line string) string {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
	return fields[len(fields)-1]
}

// whole tells whether all files of a list are in a folder as they were.
func whole(dir, list string) bool {
	for text := range strings.Lines(list) {
		info, err := os.Lstat(filepath.Join(dir, nameIn(text)))
		if err != nil || line(nameIn(text), info) != text {
			return false
		}
	}
	return list != ""
}

// install lets NVRTC unpack its headers, unless its marker is there. NVRTC guards the folder against
// other threads and processes.
func install(dir string) error {
	runtime.LockOSThread() // the message belongs to the thread
	defer runtime.UnlockOSThread()
	var message *byte
	if err := nvrtc.NvrtcInstallBundledHeaders(ffi.CString(dir), 0, &message); err != nil {
		text := ""
		if message != nil {
			text = ": " + ffi.GoString(message)
		}
		return fmt.Errorf("the headers of NVRTC cannot be unpacked to %s: %w%s", dir, err, text)
	}
	return nil
}
