// Kernels reads files of CUDA C++ and writes Go files in which each kernel is a typed function:
//
//	//go:generate go tool kernels vector.cu
//
// For vector.cu it writes vector_cu.go with the type Vector, which has a field for each
// kernel, and the function LoadVector. It needs NVRTC, and neither a GPU nor nvcc.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/internal/replace"
	"github.com/cudabind/cudabind/tools/kernels/emit"
	"github.com/cudabind/cudabind/tools/kernels/model"
	"golang.org/x/mod/module"
)

const usage = `usage: kernels [flags] FILE.cu ...

Kernels writes FILE_cu.go for each file of CUDA C++: a typed Go function for each kernel. The files of
one Go package belong into one call, as they share types. It returns 1 if a file cannot be bound, and then
writes nothing.

`

// A config is what the command line says.
type config struct {
	pkg, folder, standard, nvrtc, arch string
	include, kernels, images           []string
	flags                              []string
	defines                            map[string]string
	doubles, check                     bool
	names                              model.Options
	files                              []string
}

// asFlags names the command's flags in place of what programs use.
var asFlags = strings.NewReplacer("in nvrtc.Open", "by -nvrtc", "in Options.IncludePaths", "by -I")

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "kernels:", asFlags.Replace(err.Error()))
		}
		os.Exit(1)
	}
}

// list is a flag that may be given several times.
type list struct{ to *[]string }

func (l list) String() string { return "" }
func (l list) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*l.to = append(*l.to, s)
	return nil
}

// pairs is a flag NAME=VALUE that may be given several times.
type pairs struct {
	to     map[string]string
	equals bool // = and a value are required
}

func (p pairs) String() string { return "" }
func (p pairs) Set(s string) error {
	name, value, found := strings.Cut(s, "=")
	if name == "" || p.equals && (!found || value == "") {
		return errors.New("it must be NAME=VALUE")
	}
	if _, twice := p.to[name]; twice {
		return fmt.Errorf("%s is there twice", name)
	}
	p.to[name] = value
	return nil
}

// parse reads the command line.
func parse(args []string, out io.Writer) (*config, error) {
	c := &config{defines: map[string]string{}}
	c.names.Rename = map[string]string{}
	images := ""
	f := flag.NewFlagSet("kernels", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() { io.WriteString(out, usage); f.PrintDefaults() }
	f.StringVar(&c.pkg, "package", os.Getenv("GOPACKAGE"), "the Go `package`; that of the Go files beside, or the folder's name, without it")
	f.StringVar(&c.folder, "o", "", "the `folder` for the Go files; the sources' own without it")
	f.Var(list{&c.kernels}, "kernels", "an `instance` of a template to bind, such as 'scale<float>'; may be repeated")
	f.StringVar(&images, "image", "", "compile here, for these architectures: compute_75,sm_90 for PTX and machine code; without it the program compiles the source by NVRTC")
	f.StringVar(&c.arch, "arch", "", "the `architecture` to read the sources for, such as sm_90a; the newest of -image, or sm_90, without it")
	f.BoolVar(&c.doubles, "doubles", false, "also write FILE_cu_test.go, with which tests run Go functions as kernels, without a GPU")
	f.BoolVar(&c.check, "check", false, "write nothing, and fail if a file is not as it would be written")
	f.Var(list{&c.names.Skip}, "skip", "a `kernel` or variable to leave out; may be repeated")
	f.Var(pairs{c.names.Rename, true}, "rename", "`NAME=GO`: the Go name of a kernel, a variable, a file or a type; NAME@LINE for one of several types; may be repeated")
	f.Var(list{&c.include}, "I", "a `folder` with headers; may be repeated")
	f.Var(pairs{c.defines, false}, "D", "a `macro`, NAME or NAME=VALUE; may be repeated")
	f.StringVar(&c.standard, "std", "", "the `dialect`, such as c++20; NVRTC's own without it")
	f.Var(list{&c.flags}, "flag", "a further `option` of NVRTC, such as -device-int128; may be repeated")
	f.StringVar(&c.nvrtc, "nvrtc", "", "the `file` of NVRTC; found as package compile finds it without it")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	c.files = f.Args()
	if images != "" {
		c.images = strings.Split(images, ",")
	}
	if len(c.files) == 0 {
		return nil, errors.New("name the files to read: kernels vector.cu")
	}
	if c.pkg == "" {
		c.pkg = packageOf(cmp.Or(c.folder, filepath.Dir(c.files[0])))
	}
	switch {
	case !token.IsIdentifier(c.pkg) || c.pkg == "_":
		return nil, fmt.Errorf("-package: %q is no name of a Go package: set it", c.pkg)
	case c.folder != "" && !isFolder(c.folder):
		return nil, fmt.Errorf("-o: %s is no folder", c.folder)
	}
	if c.arch != "" && !strings.HasPrefix(c.arch, "sm_") {
		return nil, fmt.Errorf("-arch: %q is no architecture such as sm_90a", c.arch)
	}
	for _, a := range c.images {
		if !strings.HasPrefix(a, "compute_") && !strings.HasPrefix(a, "sm_") {
			return nil, fmt.Errorf("-image: %q is no architecture such as compute_75, for PTX, or sm_90, for machine code", a)
		}
	}
	return c, nil
}

// packageOf returns the name of the Go package in a folder, or the folder's name if it has no Go files.
func packageOf(folder string) string {
	if p, _ := build.ImportDir(folder, 0); p.Name != "" {
		return p.Name
	}
	absolute, _ := filepath.Abs(folder)
	return filepath.Base(absolute)
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// run reads all sources before it writes anything.
func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parse(args, out)
	if err != nil {
		return err
	}
	if c.nvrtc != "" {
		if err := nvrtc.Open(c.nvrtc); err != nil {
			return err
		}
	}
	sources, err := c.open()
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	p := model.NewPackage(c.names)
	var all []error
	for _, s := range sources {
		all = append(all, c.bind(ctx, p, s, files))
	}
	if unused := p.Unused(); len(unused) > 0 && errors.Join(all...) == nil {
		all = append(all, fmt.Errorf("%s: nothing has that name", strings.Join(unused, ", ")))
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	if c.check {
		return check(files)
	}
	return write(files)
}

// open opens all sources, and gives each instance of a template to the sources that have it.
func (c *config) open() ([]*source, error) {
	var all []*source
	for _, file := range c.files {
		s, err := openSource(file)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	for _, instance := range c.kernels {
		found := false
		for _, s := range all {
			if s.has(instance) {
				s.kernels, found = append(s.kernels, instance), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-kernels: no source has the template of %s", instance)
		}
	}
	return all, nil
}

// bind adds the Go file of a source to files, and what it embeds.
func (c *config) bind(ctx context.Context, p *model.Package, s *source, files map[string][]byte) error {
	file := s.file
	f, err := c.analyze(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(f.Kernels)+len(f.Variables) == 0 {
		return fmt.Errorf("%s: it has neither kernels nor variables; name instances of templates by -kernels", file)
	}
	lines, err := s.lines(f)
	if err != nil {
		return err
	}
	u, err := p.Add(file, f, lines)
	if err != nil {
		return err
	}
	folder := c.folder
	if folder == "" {
		folder = filepath.Dir(file)
	}
	var image *emit.Image
	code := map[string][]byte{}
	if len(c.images) > 0 {
		image, code, err = c.compiled(ctx, s, u)
	} else {
		image, err = c.embedded(s, folder)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	base := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	if name := base + "_cu.go"; strings.ContainsAny(name[:1], "._-") || module.CheckFilePath(name) != nil {
		return fmt.Errorf("%s: Go does not compile a file called %s: rename the source", file, name)
	}
	if code[base+"_cu.go"], err = emit.Unit(c.pkg, u, image); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if c.doubles {
		if code[base+"_cu_test.go"], err = emit.Doubles(c.pkg, u, image); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for name, text := range code {
		path := filepath.Join(folder, name)
		if _, ok := files[path]; ok {
			return fmt.Errorf("%s: another source writes %s, too", file, path)
		}
		files[path] = text
	}
	return nil
}

// check returns an error that names the files that are not as they would be written.
func check(files map[string][]byte) error {
	var stale []string
	for name, want := range files {
		if is, err := os.ReadFile(name); err != nil || !bytes.Equal(is, want) {
			stale = append(stale, name)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	slices.Sort(stale)
	return fmt.Errorf("%s: not as generated from the source: run go generate, or give -check the flags of the go:generate line", strings.Join(stale, ", "))
}

// write writes the files that have changed, all or none. It replaces none that this command has not written.
func write(files map[string][]byte) error {
	for name, text := range files {
		if info, err := os.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return notOurs(name)
		}
		is, err := os.ReadFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case bytes.Equal(is, text):
			delete(files, name)
		case !ours(name, is):
			return notOurs(name)
		}
	}
	var all []replace.File
	for name, text := range files {
		all = append(all, replace.File{Name: name, Data: text})
	}
	return replace.Files(0o644, all...)
}

func notOurs(name string) error {
	return fmt.Errorf("%s exists, and this command has not written it: move it away", name)
}

// ours tells whether this command has written a file: a Go file says so, and names compiled code that it embeds.
func ours(name string, text []byte) bool {
	const head = "// Code generated by tools/kernels "
	if filepath.Ext(name) == ".go" {
		return bytes.HasPrefix(text, []byte(head))
	}
	entries, _ := os.ReadDir(filepath.Dir(name))
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if !strings.HasSuffix(e.Name(), "_cu.go") {
			return false
		}
		text, err := os.ReadFile(filepath.Join(filepath.Dir(name), e.Name()))
		return err == nil && bytes.HasPrefix(text, []byte(head)) && bytes.Contains(text, []byte("\n"+emit.Embed(filepath.Base(name))+"\n"))
	})
}
