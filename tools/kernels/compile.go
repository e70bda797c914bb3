package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/tools/kernels/emit"
	"github.com/cudabind/cudabind/tools/kernels/model"
	"github.com/cudabind/cudabind/tools/kernels/read"
	"golang.org/x/mod/module"
)

// analyzed returns the architecture whose debug information is read: that of -arch, or the newest of -image, which may
// be the only one that a source compiles for. Every version of NVRTC from 12.0 on compiles for sm_90, the oldest.
func (c *config) analyzed() string {
	if c.arch != "" {
		return c.arch
	}
	number := func(arch string) (n int, suffix string) {
		fmt.Sscanf(arch, "sm_%d%s", &n, &suffix)
		return n, suffix
	}
	newest := "sm_90"
	for _, arch := range c.images {
		arch = strings.Replace(arch, "compute_", "sm_", 1)
		n, suffix := number(arch)
		most, has := number(newest)
		if cmp.Or(cmp.Compare(n, most), cmp.Compare(suffix, has)) > 0 {
			newest = arch
		}
	}
	return newest
}

// A source is a file to bind.
type source struct {
	file  string
	text  string
	local []string // the file and the headers that it includes by quotes, which lie in its folder or below

	kernels []string // instances of its templates
}

// openSource reads a source and finds its headers.
func openSource(file string) (*source, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &source{file: file, text: string(text)}
	s.include(file, map[string]bool{}, map[string]bool{})
	return s, nil
}

var quoted = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"`)

// include notes a file by each of its names, and those that it includes. What is not found beside it is the compiler's to find.
func (s *source) include(file string, names, read map[string]bool) {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || names[filepath.Clean(file)] { // a device has no end
		return
	}
	to, err := filepath.EvalSymlinks(file)
	if err != nil {
		return
	}
	names[filepath.Clean(file)] = true
	s.local = append(s.local, file)
	if read[to] { // by links to folders around it there is no end of names
		return
	}
	read[to] = true
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	for _, m := range quoted.FindAllStringSubmatch(strings.TrimPrefix(string(text), "\ufeff"), -1) {
		s.include(filepath.Join(filepath.Dir(file), m[1]), names, read)
	}
}

var templateName = regexp.MustCompile(`(\w+)\s*(<.*)?$`)

// has tells whether the source or a header of its own has the name of a template of which instance is one.
func (s *source) has(instance string) bool {
	m := templateName.FindStringSubmatch(instance)
	if m == nil {
		return false
	}
	name := regexp.MustCompile(`\b` + m[1] + `\b`)
	return slices.ContainsFunc(s.local, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && name.Match(text)
	})
}

// lines returns the lines of the source and its headers, and names them in f as the user does.
func (s *source) lines(f *read.File) (map[string][]string, error) {
	all, names := map[string][]string{}, map[string]string{}
	for _, l := range s.local {
		text, err := os.ReadFile(l)
		if err != nil {
			return nil, err
		}
		all[l] = strings.Split(string(text), "\n")
	}
	f.Relocate(func(file string) string {
		name, ok := names[file]
		if !ok {
			name = file
			for _, l := range s.local {
				if same(file, l) {
					name = l
				}
			}
			names[file] = name
		}
		return name
	})
	return all, nil
}

func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// options are those of NVRTC for a source.
func (c *config) options(s *source) compile.Options {
	return compile.Options{
		File: s.file, Standard: c.standard, IncludePaths: c.include, Defines: c.defines,
		Kernels: s.kernels, Flags: c.flags, NoCache: true,
	}
}

// analyze compiles a source with debug information, and reads that.
func (c *config) analyze(ctx context.Context, s *source) (*read.File, error) {
	o := c.options(s)
	o.Arch, o.Debug = c.analyzed(), true
	image, err := compile.Compile(ctx, s.text, o)
	if err != nil {
		return nil, err
	}
	f, err := read.Cubin(image.Code)
	if errors.Is(err, read.ErrNoDebug) {
		library, _, _ := nvrtc.Library()
		return nil, fmt.Errorf("%w: %s is no NVRTC of NVIDIA, but perhaps the double that simdriver builds: unset LD_LIBRARY_PATH, or name NVIDIA's library by -nvrtc", err, library)
	}
	return f, err
}

// compiled compiles a unit for each architecture of -image, into files of the output's folder.
func (c *config) compiled(ctx context.Context, s *source, u *model.Unit) (*emit.Image, map[string][]byte, error) {
	i, files := &emit.Image{}, map[string][]byte{}
	for _, arch := range c.images {
		o := c.options(s)
		o.Arch = arch
		o.Kernels = slices.Concat(s.kernels, u.Expressions())
		slices.Sort(o.Kernels)
		o.Kernels = slices.Compact(o.Kernels)
		ptx := strings.HasPrefix(arch, "compute_")
		suffix := ".cubin"
		if ptx {
			o.Format, suffix = compile.PTX, ".ptx"
		}
		image, err := compile.Compile(ctx, s.text, o)
		if err != nil {
			return nil, nil, err
		}
		name := strings.TrimSuffix(u.Source, filepath.Ext(u.Source)) + "_" + arch + suffix
		files[name] = image.Code
		i.Files = append(i.Files, name)
		i.Compiled = append(i.Compiled, emit.Compiled{PTX: ptx, Arch: arch, Names: image.Names})
	}
	return i, files, nil
}

// embedded describes a source that the program compiles. Go embeds only what lies beside the Go file or below.
func (c *config) embedded(s *source, folder string) (*emit.Image, error) {
	i := &emit.Image{Defines: c.defines, Standard: c.standard, Flags: c.flags}
	root, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	for _, l := range s.local {
		file, err := filepath.Abs(l)
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil || !filepath.IsLocal(relative) {
			return nil, fmt.Errorf("%s does not lie in %s, so Go cannot embed it: move it, write the Go files there by -o, or compile here by -image", l, folder)
		}
		relative = filepath.ToSlash(relative)
		for part := relative; part != "."; part = path.Dir(part) {
			name := filepath.Join(folder, part)
			if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
				return nil, fmt.Errorf("%s is a link, which Go cannot embed: name what it leads to, or compile here by -image", name)
			}
		}
		if err := module.CheckFilePath(relative); err != nil {
			return nil, fmt.Errorf("%s has a name that Go cannot embed: rename it: %w", l, err)
		}
		if l == s.file {
			i.Source = relative
		}
		i.Files = append(i.Files, relative)
	}
	slices.Sort(i.Files)
	return i, nil
}
