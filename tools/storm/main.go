//go:build cgo && linux && (amd64 || arm64)

// Command storm runs random concurrent programs over the API of package safe, and
// checks that none crashes, hangs, leaks, computes something wrong or loses a
// capture:
//
//	storm [-sim] [-seconds 60] [-seed N] [-profile NAME] [-children N]
//	storm -list
//	storm -replay FILE [-times N] [-smaller]
//
// A program is what some goroutines do with streams, memory, events and graphs that they
// share, and with others that each has for itself and whose contents it knows. Programs are
// made from a seed and run in child processes. One that fails runs again some times,
// as nobody decides how goroutines take turns, and is made smaller; the smallest that
// still fails is printed and written to a file, which -replay runs.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"
)

// options are what the command line says.
type options struct {
	seconds  int
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
	f.IntVar(&o.seconds, "seconds", 60, "how long to run programs")
	f.Uint64Var(&o.seed, "seed", 0, "the first program's, 0 for one of the time")
	f.StringVar(&o.profile, "profile", "", "what the programs are like, see -list; without it they take turns")
	f.IntVar(&o.children, "children", 0, "processes at once; 0 is 2, on the simulated driver half as many as there are cores")
	f.BoolVar(&o.sim, "sim", false, "use the simulated driver instead of the machine's")
	f.StringVar(&o.version, "driver", "", "CUDA version of the simulated driver")
	f.StringVar(&o.replay, "replay", "", "run the program in a file")
	f.BoolVar(&o.smaller, "smaller", false, "with -replay: make it smaller once it has failed")
	f.IntVar(&o.times, "times", 20, "how often -replay and what failed run")
	f.DurationVar(&o.shrink, "shrink", 30*time.Second, "how long to make a failing program smaller, 0 for not at all")
	f.DurationVar(&o.hang, "hang", 20*time.Second, "no step ends for so long: a hang")
	f.BoolVar(&o.gc, "gc", false, "collect garbage all the time")
	f.IntVar(&o.procs, "procs", 0, "GOMAXPROCS of the children")
	f.StringVar(&o.out, "out", "", "folder for programs that failed, a new one without it")
	f.BoolVar(&o.verbose, "v", false, "print every program")
	f.StringVar(&o.known, "known", "", "regular expression of faults that do not count")
	f.BoolVar(&o.list, "list", false, "list the profiles and the kinds of steps")
	f.StringVar(&o.plant, "plant", "", "for tests: mix steps in that fail: crash, hang, mismatch or leak")
	o.child.flags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("what is %q?", f.Arg(0))
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
