package headers

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
)

// mainHeader is the one that states its version.
const mainHeader = "cuda.h"

// replaced is what headers include and the generator has in a form of its own:
// NVIDIA's is for device code, and needs packages that hold nothing else.
const replaced = "cuda_runtime.h"

var (
	includePattern = regexp.MustCompile(`^#[ \t]*include[ \t]*["<]([^">]+)[">]`)
	definePattern  = regexp.MustCompile(`^#[ \t]*define[ \t]+CUDA_VERSION[ \t]+([0-9]+)`)
)

// includeFolder is an include folder: has says whether it holds a header.
type includeFolder interface {
	has(name string) bool
	read(name string) ([]byte, error)
}

// pinned reads the roots and all that they include, in any branch of an #if,
// directly or not. An include that the folder lacks (the C library's, the
// compiler's crt/) is no part of it.
func pinned(folder includeFolder, roots []string) ([]File, error) {
	sums := map[string]string{}
	for queue := slices.Clone(roots); len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if _, done := sums[name]; done {
			continue
		}
		data, err := folder.read(name)
		if err != nil {
			return nil, err
		}
		sums[name] = sum(data)
		for _, included := range directives(data, includePattern) {
			if included == replaced {
				continue
			}
			for _, to := range []string{path.Join(path.Dir(name), included), path.Clean(included)} {
				if folder.has(to) {
					queue = append(queue, to)
					break
				}
			}
		}
	}
	var files []File
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		files = append(files, File{name, sums[name]})
	}
	return files, nil
}

// directives gives what the pattern captures in the preprocessor lines.
func directives(header []byte, pattern *regexp.Regexp) []string {
	var found []string
	for line := range bytes.Lines(header) {
		line = bytes.TrimSpace(line)
		if !bytes.HasPrefix(line, []byte("#")) {
			continue // most lines; the pattern is slower
		}
		if m := pattern.FindSubmatch(line); m != nil {
			found = append(found, string(m[1]))
		}
	}
	return found
}

// checkVersion compares the version that cuda.h states with the wanted one.
func checkVersion(folder includeFolder, want string) error {
	header, err := folder.read(mainHeader)
	if err != nil {
		return err
	}
	stated := directives(header, definePattern)
	if len(stated) == 0 {
		return errors.New(mainHeader + " does not define CUDA_VERSION")
	}
	n, err := strconv.Atoi(stated[0])
	if err != nil {
		return fmt.Errorf("%s has CUDA_VERSION %s", mainHeader, stated[0])
	}
	if got := fmt.Sprintf("%d.%d", n/1000, n%1000/10); got != want {
		return fmt.Errorf("%s is of CUDA %s, not %s", mainHeader, got, want)
	}
	return nil
}
