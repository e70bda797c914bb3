package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/cuda/safe"
)

// The key of an image must change with every header that the compiler reads. NVRTC does not tell
// which it read, so all are found beforehand: every file that an #include of the source, or of a
// file found that way, can name, whether or not an #if leaves it out. These are a few more than
// the compiler reads, never fewer. It is as cheap as reading them, needs no list beside an
// image that could be out of date, and also tells which headers of an fs.FS to pass to NVRTC, and
// whether CUDA's own headers are needed. Headers of CUDA are not read: there are thousands,
// and they change with the compiler. Their folders count with the names, sizes and times of all
// files in them.

// directive matches an #include, also within comments. Its second and third group are the name, or
// neither takes part if a macro is in its place.
var directive = regexp.MustCompile(`(?:(?:#|%:|\?\?=)` + blank + `(?:include|include_next|import|embed)\b|\b__has_(?:include|include_next|embed)` + blank + `\()` + blank + `("([^"\n]+)"|<([^>\n]+)>)?`)

// blank is what may stand between the words of a directive: also comments of many lines.
const blank = `(?:[ \t\v\f]|(?s:/\*.*?\*/))*`

var spliced = regexp.MustCompile(`\\[ \t]*\r?\n`)

// origin is where a file that includes others lies: in a file system or on disk, or both for a
// source from a file system, as NVRTC takes its name for a path.
type origin struct {
	files fs.FS
	dir   string // in files
	disk  string
}

// includes are the headers that a source can include.
type includes struct {
	o       *Options
	cuda    *cudaHeaders
	memory  map[string]memoryHeader // by the words of the #include
	disk    map[string]string       // the text of each file
	stamps  map[string]bool         // folders of CUDA's headers among IncludePaths
	folders []string                // of CUDA's headers, to be searched after IncludePaths
	missing []string                // found nowhere
	unknown bool                    // an #include names its file by a macro
	visited map[string]bool
}

type memoryHeader struct{ path, text string }

// findIncludes finds all that a source and its headers include.
func findIncludes(o *Options, source string, from origin, cuda *cudaHeaders) (*includes, error) {
	i := &includes{o: o, cuda: cuda, memory: map[string]memoryHeader{}, disk: map[string]string{}, stamps: map[string]bool{}, visited: map[string]bool{}}
	return i, i.visit(source, from)
}

func (i *includes) visit(text string, from origin) error {
	if strings.Contains(text, "\\") {
		text = spliced.ReplaceAllString(text, "")
	}
	for _, m := range directive.FindAllStringSubmatch(text, -1) {
		if m[1] == "" {
			i.unknown = true
			continue
		}
		name, quoted := m[2]+m[3], m[2] != ""
		found, err := i.inMemory(name, quoted, from)
		if err == nil && !found {
			found, err = i.onDisk(name, quoted, from)
		}
		if err == nil && !found {
			found, err = i.ofCUDA(name)
		}
		if err != nil {
			return err
		}
		if !found && !slices.Contains(i.missing, name) {
			i.missing = append(i.missing, name)
		}
	}
	return nil
}

// inMemory looks for a header in the file systems. NVRTC tells such headers apart by the words of
// the #include alone.
func (i *includes) inMemory(name string, quoted bool, from origin) (bool, error) {
	type place struct {
		files fs.FS
		path  string
	}
	var places []place
	if from.files != nil && quoted {
		places = append(places, place{from.files, path.Join(from.dir, name)})
	}
	if i.o.Headers != nil {
		places = append(places, place{i.o.Headers, path.Clean(name)})
	}
	for _, p := range places {
		if !fs.ValidPath(p.path) {
			continue
		}
		text, err := fs.ReadFile(p.files, p.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		before, twice := i.memory[name]
		if twice && before.path != p.path {
			return false, fmt.Errorf("%w: #include %q stands for %s in one file and for %s in another; NVRTC takes both for the same: include them by their whole paths", safe.ErrInvalidArgument, name, before.path, p.path)
		}
		i.memory[name] = memoryHeader{p.path, string(text)}
		if strings.Contains(string(text), "\x00") {
			return false, fmt.Errorf("%w: the header %s has a zero byte", safe.ErrInvalidArgument, p.path)
		}
		if key := "fs:" + p.path; !i.visited[key] {
			i.visited[key] = true
			return true, i.visit(string(text), origin{files: p.files, dir: path.Dir(p.path), disk: filepath.Dir(filepath.FromSlash(name))})
		}
		return true, nil
	}
	return false, nil
}

// onDisk looks for a header beside the file that includes it and in IncludePaths. All files that
// are there count, and not only the first, whatever the compiler's order.
func (i *includes) onDisk(name string, quoted bool, from origin) (found bool, err error) {
	var folders []string
	if quoted {
		folders = append(folders, from.disk)
	}
	folders = append(folders, i.o.IncludePaths...)
	if filepath.IsAbs(name) {
		folders = []string{""}
	}
	for n, dir := range folders {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		found = true
		if own := n == 0 && quoted; !own && hasHeaders(dir) {
			i.stamps[dir] = true
			if !holds(i.o.IncludePaths, cccl) {
				if _, err := i.ofCUDA(cccl); err != nil {
					return false, err
				}
			}
			continue
		}
		if _, ok := i.disk[file]; ok {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the compiler says so, if it needs the file
		}
		i.disk[file] = string(text)
		if err := i.visit(string(text), origin{disk: filepath.Dir(file)}); err != nil {
			return false, err
		}
	}
	return found, nil
}

// ofCUDA looks for a header among CUDA's own.
func (i *includes) ofCUDA(name string) (bool, error) {
	if holds(i.folders, name) {
		return true, nil
	}
	folders, err := i.cuda.find(name)
	for _, dir := range folders {
		if !slices.Contains(i.folders, dir) {
			i.folders = append(i.folders, dir)
		}
	}
	return len(folders) > 0, err
}

// headers are those to pass to NVRTC.
func (i *includes) headers() (all []header) {
	for _, name := range slices.Sorted(maps.Keys(i.memory)) {
		all = append(all, header{name, i.memory[name].text})
	}
	return all
}

// addTo adds all headers to the key of an image.
func (i *includes) addTo(k key) error {
	for _, h := range i.headers() {
		k.add("header", h.name, h.text)
	}
	for _, file := range slices.Sorted(maps.Keys(i.disk)) {
		k.add("file", file, i.disk[file])
	}
	for _, dir := range slices.Sorted(maps.Keys(i.stamps)) {
		stamp, err := stampOf(dir)
		if err != nil {
			return err
		}
		k.add("folder", dir, stamp)
	}
	for _, dir := range i.folders {
		stamp, err := i.cuda.stamp(dir)
		if err != nil {
			return err
		}
		k.add("CUDA", dir, stamp)
	}
	return nil
}

// hint says where headers that the compiler did not find were looked for.
func (i *includes) hint(log string) string {
	for _, name := range i.missing {
		if strings.Contains(log, `"`+name+`"`) {
			return fmt.Sprintf("%s: %s", name, i.cuda.looked())
		}
	}
	return ""
}
