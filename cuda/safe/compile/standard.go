package compile

import (
	"embed"
	"io/fs"
	"path"
	"slices"
)

// The headers of C that kernels include, and those that nvcc's sources begin with. NVRTC has no files of them: what is
// in them is there by itself, or declared here. They are passed to NVRTC where no folder has a file of the name, but one with C's own headers.
//
//go:embed standard
var standardHeaders embed.FS

// standardHeader returns the text of a header of this package.
func standardHeader(name string) (string, bool) {
	if !fs.ValidPath(name) {
		return "", false
	}
	text, err := standardHeaders.ReadFile(path.Join("standard", name))
	return string(text), err == nil
}

// addStandard passes the headers of this package that are included and lie nowhere else.
func (i *includes) addStandard() {
	for at := 0; at < len(i.lookups); at++ { // which grows by what these headers include
		l := i.lookups[at]
		text, ok := standardHeader(l.name)
		if _, own := i.memory[l.name]; own || !ok || i.onDisk(l) && !i.onlyMixed(l) {
			continue
		}
		i.memory[l.name] = memoryHeader{path.Join("standard", l.name), text}
		i.read(text, origin{})
	}
}

// onlyMixed tells whether a header is found nowhere but where C's own headers are among those of CUDA.
func (i *includes) onlyMixed(l lookup) bool {
	folders := slices.Clone(i.o.IncludePaths)
	if l.quoted {
		folders = append(folders, l.from.disk)
	}
	for _, dir := range slices.Concat(folders, i.folders) {
		if !mixed(dir) && holds([]string{dir}, l.name) {
			return false
		}
	}
	return true
}
