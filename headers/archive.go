package headers

import (
	"archive/zip"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// maxHeader bounds what one header may unpack to: ten times the largest one.
const maxHeader = 16 << 20

// archive is the include folder inside a wheel, which is a zip file.
type archive struct {
	files map[string]*zip.File // by path relative to the include folder
}

// openArchive finds the include folder by a header in it.
func openArchive(w wheel, header string) (*archive, error) {
	z, err := zip.NewReader(w, w.size)
	if err != nil {
		return nil, fmt.Errorf("%s is no whole archive: %w", w.name, err)
	}
	root := ""
	for _, f := range z.File {
		if !safePath(f.Name) {
			return nil, fmt.Errorf("%s is not to be trusted: it has an entry %q, outside of its folder", w.name, f.Name)
		}
		if dir, file := path.Split(f.Name); file == header && path.Base(dir) == "include" {
			if root != "" {
				return nil, fmt.Errorf("%s has two include folders, %s and %s", w.name, root, dir)
			}
			root = dir
		}
	}
	if root == "" {
		return nil, fmt.Errorf("%s has no include/%s", w.name, header)
	}
	a := &archive{map[string]*zip.File{}}
	for _, f := range z.File {
		if rel, ok := strings.CutPrefix(f.Name, root); ok && rel != "" && !strings.HasSuffix(rel, "/") {
			if a.has(rel) {
				return nil, fmt.Errorf("%s has two entries %q", w.name, f.Name)
			}
			a.files[rel] = f
		}
	}
	return a, nil
}

// safePath reports whether an entry stays in the folder it is unpacked to, on
// every operating system.
func safePath(name string) bool {
	return fs.ValidPath(strings.TrimSuffix(name, "/")) && !strings.ContainsAny(name, "\\:\x00")
}

func (a *archive) has(name string) bool { return a.files[name] != nil }

func (a *archive) read(name string) ([]byte, error) {
	f := a.files[name]
	if f == nil {
		return nil, fmt.Errorf("it lacks the header %s", name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxHeader+1))
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	if len(data) > maxHeader {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxHeader)
	}
	return data, nil
}
