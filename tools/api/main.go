// Command api compares the exported API of the public packages with the text
// below api/, or with -w writes that text:
//
//	go run ./tools/api [-w [-remove]]
//
// What was published stays: -w refuses to remove or change lines without -remove, but for the
// values of CUDA's constants.
// It is the same on every machine: the API is that of linux/amd64 with cgo.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/cudabind/cudabind"

// public are the packages that programs may depend on.
var public = []string{
	"cuda/ffi",
	"cuda/generated/cublas",
	"cuda/generated/cublaslt",
	"cuda/generated/cudart12",
	"cuda/generated/cudart13",
	"cuda/generated/cufft",
	"cuda/generated/cupti",
	"cuda/generated/curand",
	"cuda/generated/driver",
	"cuda/generated/librarytypes",
	"cuda/generated/nccl",
	"cuda/generated/nvjitlink",
	"cuda/generated/nvml",
	"cuda/generated/nvrtc",
	"cuda/safe",
	"cuda/safe/blas",
	"cuda/safe/collective",
	"cuda/safe/compile",
	"cuda/safe/dtype",
	"cuda/safe/fft",
	"cuda/safe/library",
	"cuda/safe/profile",
	"cuda/safe/random",
	"cuda/vector",
	"tools/simdriver/sim",
}

func main() {
	var o options
	flag.BoolVar(&o.write, "w", false, "write api/ instead")
	flag.BoolVar(&o.remove, "remove", false, "with -w, also remove and change lines, as docs/versioning.md permits for package safe")
	flag.Parse()
	if err := run(".", module, public, o, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct{ write, remove bool }

// run compares the packages of the module in a folder with its api/, or writes it.
func run(root, module string, packages []string, o options, w io.Writer) error {
	texts := map[string]string{} // by package
	l, err := newLoader(root, module)
	if err != nil {
		return err
	}
	for _, name := range packages {
		p, err := l.Import(path.Join(module, name))
		if err != nil {
			return err
		}
		texts[name] = strings.Join(lines(p), "\n") + "\n"
	}
	differ := map[string]string{} // the new text by file
	removed := 0
	for _, name := range packages {
		file := "api/" + path.Base(name) + ".txt"
		there, err := os.ReadFile(filepath.Join(root, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if string(there) != texts[name] {
			differ[file] = texts[name]
			removed += report(w, name, file, string(there), texts[name])
		}
	}
	switch {
	case len(differ) > 0 && !o.write:
		return errors.New("the exported API differs from api/: undo that, or run make api and add a line to CHANGELOG.md")
	case removed > 0 && !o.remove:
		return fmt.Errorf("api/ would lose lines (%d): undo that, or see docs/versioning.md for when they may, and add -remove", removed)
	}
	for file, text := range differ {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// report prints the lines that only one of both has, and counts those that disappear. A constant with another
// value is still there, where CUDA decides on values.
func report(w io.Writer, name, file, there, text string) (removed int) {
	old, now := strings.Split(strings.TrimSuffix(there, "\n"), "\n"), strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	fmt.Fprintf(w, "%s differs from %s:\n", name, file)
	for _, line := range old {
		if _, found := slices.BinarySearch(now, line); found || line == "" {
			continue
		}
		fmt.Fprintln(w, "  -", line)
		if !valuedByCUDA(name) || !hasConstant(now, line) {
			removed++
		}
	}
	for _, line := range now {
		if _, found := slices.BinarySearch(old, line); !found {
			fmt.Fprintln(w, "  +", line)
		}
	}
	return removed
}

// valuedByCUDA tells whether the constants of a package have values that a CUDA version may change.
func valuedByCUDA(name string) bool {
	return strings.HasPrefix(name, "cuda/generated/") || name == "tools/simdriver/sim"
}

// hasConstant tells whether the constant of a line is among lines, with any value.
func hasConstant(lines []string, line string) bool {
	constant, _, isConstant := strings.Cut(line, " = ")
	return isConstant && strings.HasPrefix(line, "const ") && slices.ContainsFunc(lines, func(other string) bool {
		return strings.HasPrefix(other, constant+" = ")
	})
}
