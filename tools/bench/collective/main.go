// Command collective measures all-reduces of package collective beside those of NCCL in C and of
// torch.distributed, on the GPUs of this machine:
//
//	go build -o ranks ./tools/bench/collective
//	./ranks -source > ranks.c && cc -O2 -o ranks-c ranks.c ..., with what docs/scale.md has
//	./ranks [-gpus N] [-rounds N] [-c PROGRAM] [-python PROGRAM] [-short] [-page FILE]
//
// Each contestant runs in processes of its own, in turns and for several rounds; the table has the
// fastest round, and the slowest one where that took more than 1.5 times as long.
// C and package collective run as threads or goroutines of one process, and as a process for each GPU;
// torch.distributed has the latter alone. C's communicators are blocking ones, as those of package collective. All wait
// for each other by the operations alone. Ratios of one run tell something, times of different runs do not.
//
// The figures are, in microseconds: an operation and a wait for the stream; one of 200 without a wait between
// them; a group of 5, one of 200 as well; a launch of a graph with an operation, and a wait.
// -page replaces what lies between two marks in a page, if every contestant has figures. Each tells
// the version of its NCCL on standard error: see that all use the same.
//
// NVLink multicast is switched off for all, unless NCCL_NVLS_ENABLE is set.
package main

import (
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

//go:embed c/ranks.c
var source string

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "collective:", err)
		os.Exit(1)
	}
}

type arguments struct {
	gpus, rounds    int
	c, python, page string
	short, source   bool
	limit           time.Duration
	rank            bool // be a contestant
}

func parse(args []string, stderr io.Writer) (a arguments, err error) {
	fs := flag.NewFlagSet("collective", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&a.gpus, "gpus", 2, "measure on so many GPUs")
	fs.IntVar(&a.rounds, "rounds", 3, "how often each contestant runs")
	fs.StringVar(&a.c, "c", "", "`program` of ranks.c")
	fs.StringVar(&a.python, "python", "", "`program` that has torch")
	fs.StringVar(&a.page, "page", "", "replace the tables in `file`")
	fs.BoolVar(&a.short, "short", false, "one short round, to see that it works")
	fs.BoolVar(&a.source, "source", false, "print ranks.c")
	fs.DurationVar(&a.limit, "limit", 3*time.Minute, "end a contestant that runs longer")
	fs.BoolVar(&a.rank, "rank", false, "be the contestant in Go")
	err = fs.Parse(args)
	switch {
	case err != nil:
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case a.gpus < 1 || a.rounds < 1:
		err = errors.New("-gpus and -rounds must be 1 at least")
	}
	if a.short {
		a.rounds = 1
	}
	return a, err
}

func run(args []string, stdout, stderr io.Writer) error {
	a, err := parse(args, stderr)
	switch {
	case err != nil:
		return err
	case a.source:
		_, err := io.WriteString(stdout, source)
		return err
	case a.rank:
		return beRank(a.short, stdout)
	}
	if _, set := os.LookupEnv("NCCL_NVLS_ENABLE"); !set {
		os.Setenv("NCCL_NVLS_ENABLE", "0")
	}
	all, err := a.contestants()
	if err != nil {
		return err
	}
	r := results{}
	for range a.rounds {
		for _, c := range all {
			figures, err := c.run(a.gpus, a.limit, stderr)
			if err != nil {
				fmt.Fprintf(stderr, "%s, %s: %v\n", c.name, c.mode, err)
			}
			r.add(c, figures)
		}
	}
	text := r.markdown(a.gpus)
	_, err = io.WriteString(stdout, text)
	if err = cmp.Or(err, r.missing(all)); err == nil && a.page != "" {
		err = replace(a.page, a.gpus, text)
	}
	return err
}
