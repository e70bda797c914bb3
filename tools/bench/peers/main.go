// Command peers measures package safe beside C and beside other bindings of CUDA, on this machine's
// GPU, and writes docs/peers.md:
//
//	peers [-json FILE] [-page FILE] [-seconds N] [-only C,safe,...] [-short] [-bin FOLDER] [-python FILE]
//	peers -from FILE.json [-page FILE]
//	peers -build -bin FOLDER
//
// The contestants are programs that do the same operations, each in a process of its own. They run
// in turns, operation by operation and round by round: C, packages driver (raw) and safe, what package
// safe does for many operations at once (bulk: Batch, AddAll, SetAll and Arena; replay: a Batch
// recorded once), cudarc with and without its tracking of events (cudarc, cudarc-nt), cuda.core,
// cuda.bindings, CuPy and PyTorch.
//
// The contestants in Go are part of this program. Those in C and Rust are built, in the folder that
// -bin names or beside this program, if they are not there yet: C takes a C compiler and cuda.h,
// cudarc takes cargo and the network. -build does that alone, for a machine without compilers. Those in
// Python take part where -python (default python3) has their packages: cuda-bindings, cuda-core,
// cupy and torch. The table names the absent ones and says why. The driver is the one that the system
// finds, or that LD_LIBRARY_PATH leads to.
//
// The table has C's times, the others as multiples of them, the best tracked and untracked peers, and by how much the
// starts differ. A way of package safe LOSES where it is slower than the best tracked peer by more than 5 % and by more than
// an empty cgo call and 15 ns in each start; reasons.go says why each may. limits.go has the limits beside the untracked ones. -page writes the same as Markdown, with a plot
// beside it (peers.svg for peers.md). -json writes all figures, and -from reads those instead of
// measuring. On a machine without compilers, from the bundle that make gpu-test-bundle builds:
//
//	./peers -bin . -json peers.json -page peers.md
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

type usageError struct{ error }

// arguments are those of the command line.
type arguments struct {
	json, page, from  string
	only, bin, python string
	contestant        string // to be, instead of measuring
	seconds           int
	short, build      bool
}

func parse(args []string, stderr io.Writer) (a arguments, err error) {
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&a.json, "json", "", "write all figures to `file`")
	fs.StringVar(&a.page, "page", "", "write the table and the reasons as Markdown to `file`, which ends in .md, and a plot beside it")
	fs.StringVar(&a.from, "from", "", "read figures from `file`, which -json wrote, instead of measuring")
	fs.StringVar(&a.only, "only", "", "`names` of the contestants, separated by commas (default: all)")
	fs.IntVar(&a.seconds, "seconds", 500, "leave out rows that would begin later than that")
	fs.BoolVar(&a.short, "short", false, "1 short round of each row, to see that it works")
	fs.StringVar(&a.bin, "bin", "", "`folder` of the contestants in C and Rust (default: that of this program)")
	fs.BoolVar(&a.build, "build", false, "build the contestants in C and Rust, and measure nothing")
	fs.StringVar(&a.python, "python", "python3", "`program` that runs the contestants in Python")
	fs.StringVar(&a.contestant, "contestant", "", "be the contestant of that `name`: raw, safe, bulk or replay")
	err = fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return a, err
	case err != nil:
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case a.page != "" && filepath.Ext(a.page) != ".md":
		err = fmt.Errorf("-page %s: its name must end in .md", a.page)
	case a.seconds < 1:
		err = fmt.Errorf("-seconds %d: it must be at least 1", a.seconds)
	}
	if err != nil {
		return a, usageError{err}
	}
	return a, nil
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	a, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if a.contestant != "" {
		return contend(a.contestant, stdin, stdout)
	}
	var r *results
	if a.from != "" {
		r, err = readResults(a.from)
	} else {
		r, err = a.measure(stderr)
	}
	if err != nil || r == nil {
		return err
	}
	if _, err := io.WriteString(stdout, r.text()); err != nil {
		return err
	}
	if a.json != "" {
		if err := r.writeFile(a.json); err != nil {
			return err
		}
	}
	if a.page != "" {
		if err := r.writePage(a.page); err != nil {
			return err
		}
	}
	return r.failed()
}

// contend is a contestant until there is nothing more to do.
func contend(name string, in io.Reader, out io.Writer) (err error) {
	contestants := map[string]func() *ours{"raw": newRaw, "safe": newSafe, "bulk": newBulk, "replay": newReplay}
	c, ok := contestants[name]
	if !ok {
		return usageError{fmt.Errorf("-contestant %q: it is raw, safe, bulk or replay", name)}
	}
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%s: %v", name, e)
		}
	}()
	return c().serve(in, out)
}

// measure builds what can be built, and has all contestants do all rows. It returns nothing if it
// is only to build.
func (a *arguments) measure(log io.Writer) (*results, error) {
	p := &place{folder: a.bin, python: a.python}
	var err error
	if p.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if p.folder == "" {
		p.folder = filepath.Dir(p.self)
	}
	if p.folder, err = filepath.Abs(p.folder); err != nil {
		return nil, err
	}
	if p.files, err = os.MkdirTemp("", "peers"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(p.files)
	if err := unpack(p.files); err != nil {
		return nil, err
	}
	chosen, err := a.chosen(p.commands())
	if err != nil {
		return nil, err
	}
	err = build(p.files, chosen, log)
	if a.build {
		return nil, err
	}
	if err != nil {
		fmt.Fprintln(log, err) // that contestant is absent
	}
	return a.race(chosen, log)
}

// starts is how often all contestants are started. Where the memory of a process lies, and on which
// core it runs, makes the same program slower or faster for as long as it lives.
const starts = 3

func (a *arguments) race(chosen [][]string, log io.Writer) (*results, error) {
	r := &race{
		short: a.short, end: time.Now().Add(time.Duration(a.seconds) * time.Second), log: log,
		results: &results{Driver: kernelModule(), CPUs: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().Format(time.DateTime)},
	}
	n := starts
	if a.short {
		n = 1
	}
	for i := range n {
		fmt.Fprintf(log, "start %d\n", i+1)
		if err := r.start(chosen); err != nil {
			return nil, err
		}
		r.results.Starts++
	}
	return r.results, nil
}

// chosen are the contestants that -only names.
func (a *arguments) chosen(commands [][]string) ([][]string, error) {
	if a.only == "" {
		return commands, nil
	}
	var chosen [][]string
	for name := range strings.SplitSeq(a.only, ",") {
		i := slices.IndexFunc(commands, func(c []string) bool { return c[0] == name })
		if i < 0 {
			return nil, usageError{fmt.Errorf("-only %s: there is no contestant %q", a.only, name)}
		}
		chosen = append(chosen, commands[i])
	}
	return chosen, nil
}

// kernelModule is the version of NVIDIA's kernel module, "" where there is none.
func kernelModule() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	return regexp.MustCompile(`\d+\.\d+(\.\d+)?`).FindString(string(text))
}
