//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Command storm runs random concurrent programs that use package safe, and checks that none
// crashes, hangs, leaks, computes a wrong result or loses a capture:
//
//	storm [-sim] [-seconds 60] [-seed N] [-profile NAME] [-children N]
//	storm -list
//	storm -replay FILE [-times N] [-smaller]
//
// In a program, several goroutines use streams, memory, events, graphs and objects of other
// libraries: shared ones, and own ones whose content each goroutine knows. Programs are
// generated from a seed and run in child processes. Scheduling is random, so storm repeats a
// program that has failed. It then shrinks the program as long as it still fails, prints it,
// and writes it to a file for -replay.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"
)

// options are the command's flags.
type options struct {
	seconds  float64
	seed     uint64
	profile  string
	children int
	sim      bool
	version  string
	replay   string
	smaller  bool
	times    int
	shrink   time.Duration
	hang     time.Duration
	gc       bool
	procs    int
	out      string
	verbose  bool
	list     bool
	known    string
	plant    string

	child childOptions
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("storm", flag.ContinueOnError)
	f.Float64Var(&o.seconds, "seconds", 60, "how long to run programs")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the first program; 0 uses the time")
	f.StringVar(&o.profile, "profile", "", "profile of the programs, see -list (default all in turn)")
	f.IntVar(&o.children, "children", 0, "processes at once; 0 means 2, or half the cores on the simulated driver")
	f.BoolVar(&o.sim, "sim", false, "use the simulated driver")
	f.StringVar(&o.version, "driver", "", "CUDA version of the simulated driver")
	f.StringVar(&o.replay, "replay", "", "run the program in a file")
	f.BoolVar(&o.smaller, "smaller", false, "with -replay: shrink the program once it has failed")
	f.IntVar(&o.times, "times", 20, "repetitions of -replay and of failed programs")
	f.DurationVar(&o.shrink, "shrink", 30*time.Second, "time to shrink a failed program; 0 disables it")
	f.DurationVar(&o.hang, "hang", 20*time.Second, "report a hang if no step ends for this long")
	f.BoolVar(&o.gc, "gc", false, "collect garbage continuously")
	f.IntVar(&o.procs, "procs", 0, "GOMAXPROCS of the children")
	f.StringVar(&o.out, "out", "", "directory for failed programs (default a new one)")
	f.BoolVar(&o.verbose, "v", false, "print every program")
	f.StringVar(&o.known, "known", "", "regular expression of faults to ignore")
	f.BoolVar(&o.list, "list", false, "list the profiles and the kinds of steps")
	f.StringVar(&o.plant, "plant", "", "for tests: add steps that fail: crash, hang, mismatch, release or leak")
	o.child.flags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.profile != "" && profileNamed(o.profile) == nil {
		return nil, fmt.Errorf("no profile %q: see -list", o.profile)
	}
	if _, err := regexp.Compile(o.known); err != nil {
		return nil, err
	}
	if o.children == 0 {
		if o.children = 2; o.sim {
			o.children = max(1, runtime.NumCPU()/2)
		}
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1e9
	}
	return o, nil
}

func main() {
	o, err := parse(os.Args[1:])
	if err == flag.ErrHelp {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(2)
	}
	switch {
	case o.list:
		list(os.Stdout)
	case o.child.log != "":
		os.Exit(runChild(o))
	default:
		faults, err := storm(o, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, "storm:", err)
			os.Exit(2)
		}
		if faults > 0 {
			os.Exit(1)
		}
	}
}
