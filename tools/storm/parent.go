//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// chunk is the number of programs that a child runs before a new one replaces it.
const chunk = 40

// A parent starts children and collects their results.
type parent struct {
	*options
	dir     string // of logs
	library string // the simulated driver, "" for the machine's
	doubles string // a folder with those of the libraries, "" for none
	exe     string
	end     time.Time
	w       io.Writer

	mu       sync.Mutex
	next     uint64 // seed
	turn     int    // of the profiles
	programs int
	steps    int64
	captures int64
	ended    map[string]int
	faults   map[string]int // by signature
}

// storm runs programs for the given time and returns the number of failures.
func storm(o *options, w io.Writer) (int, error) {
	p := &parent{options: o, w: w, next: o.seed, ended: map[string]int{}, faults: map[string]int{}}
	clean, err := p.prepare()
	if err != nil {
		return 0, err
	}
	defer clean()
	if o.replay != "" {
		return p.replayed()
	}
	fmt.Fprintf(w, "storm: from seed %d for %g s\n", o.seed, o.seconds)
	p.end = time.Now().Add(time.Duration(o.seconds * float64(time.Second)))
	var all sync.WaitGroup
	errs := make([]error, o.children)
	for i := range o.children {
		all.Go(func() { errs[i] = p.work(i) })
	}
	all.Wait()
	p.summary()
	n := 0
	for _, k := range p.faults {
		n += k
	}
	for _, err := range errs {
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// prepare builds the simulated driver and creates directories.
func (p *parent) prepare() (clean func(), err error) {
	if p.exe, err = os.Executable(); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "storm"); err != nil {
		return nil, err
	}
	if p.sim {
		version := p.version
		if version == "" {
			version = sim.Default
		}
		if p.library = os.Getenv("CUDABIND_SIM"); p.library == "" {
			if p.library, err = sim.Build(p.dir, version); err != nil {
				return nil, err
			}
		}
	}
	if p.sim && (p.replay != "" || p.profile != "" && profileNamed(p.profile).libraries) {
		p.doubles = p.dir
		if err := buildDoubles(p.dir, p.library); err != nil {
			return nil, err
		}
	}
	if p.out == "" {
		if p.out, err = os.MkdirTemp("", "storm-failed-"); err != nil { // not a name that others can have taken
			return nil, err
		}
		return func() { os.RemoveAll(p.dir); os.Remove(p.out) }, nil // it stays if a program has failed
	}
	return func() { os.RemoveAll(p.dir) }, nil
}

// take returns the next seeds and their profile.
func (p *parent) take() (seed uint64, profile string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seed = p.next
	p.next += chunk
	if p.profile != "" {
		return seed, p.profile
	}
	for {
		next := profiles[p.turn%len(profiles)]
		p.turn++
		if !next.libraries && (!next.full || p.sim) {
			return seed, next.name
		}
	}
}

// work runs one child after another, and one at least.
func (p *parent) work(worker int) error {
	for first := true; first || time.Now().Before(p.end); {
		seed, name := p.take()
		for left := chunk; left > 0 && (first || time.Now().Before(p.end)); first = false {
			count := left
			if profileNamed(name).ends {
				count = 1
			}
			a := p.run(worker, attempt{seed: seed, count: count, profile: name, time: time.Until(p.end)})
			if a.err != nil {
				return a.err
			}
			p.count(a)
			done := len(a.results)
			if a.fault != nil {
				failed := seed + uint64(max(done-1, 0))
				if !a.told { // by the child: it died in the next
					failed, done = seed+uint64(done), done+1
				}
				p.failed(worker, name, failed, a)
			}
			if done == 0 {
				break // out of time
			}
			seed, left = seed+uint64(done), left-done
			if profileNamed(name).ends && left < chunk-8 {
				break // others' turn: these take long
			}
		}
	}
	return nil
}

// An attempt is a run of a child and its outcome.
type attempt struct {
	seed    uint64
	count   int
	profile string
	program string // a file, instead of seeds
	time    time.Duration

	results []result
	fault   *fault
	told    bool // the child itself has told of the fault
	log     []string
	output  string
	err     error // it could not be run
}

// save writes the latest steps, and all that the child said.
func (a *attempt) save(file string) error {
	return os.WriteFile(file, []byte(strings.Join(a.log, "\n")+"\n\n"+a.output), 0o666)
}

// run runs a child until it exits.
func (p *parent) run(worker int, a attempt) attempt {
	log := filepath.Join(p.dir, fmt.Sprintf("steps-%d", worker))
	args := []string{
		"-child-log", log, "-child-count", fmt.Sprint(a.count), "-child-time", a.time.String(), "-child-library", p.library, "-child-doubles", p.doubles,
		"-seed", fmt.Sprint(max(a.seed, 1)), "-profile", a.profile, "-hang", p.hang.String(), "-plant", p.plant, "-known", p.known, "-child-program", a.program,
	}
	if p.gc {
		args = append(args, "-gc")
	}
	c := command.Built(p.exe, args...)
	if p.procs > 0 {
		c.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", p.procs))
	}
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if a.err = c.Start(); a.err != nil {
		return a
	}
	// The child looks after itself; this is for one that cannot any more.
	kill := time.AfterFunc(a.time+3*p.hang+10*time.Second, func() {
		c.Process.Signal(syscall.SIGQUIT)
		time.Sleep(3 * time.Second)
		c.Process.Kill()
	})
	err := c.Wait()
	late := !kill.Stop()
	a.output, a.log = errOut.String(), readRing(log)
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var r result
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			a.results = append(a.results, r)
		}
	}
	if n := len(a.results); n > 0 && a.results[n-1].Fault != nil {
		a.fault, a.told = a.results[n-1].Fault, true
		return a
	}
	switch code := c.ProcessState.ExitCode(); {
	case err == nil:
	case code == exitHang || late:
		a.fault = &fault{hang, "", strings.Join(underWay(a.log), ", "), firstLine(a.output)}
	case code == 2 && strings.HasPrefix(a.output, "storm: "):
		a.err = fmt.Errorf("a child: %s", a.output)
	default:
		a.fault = &fault{crash, "", strings.Join(underWay(a.log), ", "), fmt.Sprintf("%v: %s", err, firstLine(a.output))}
	}
	return a
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// count adds a child's results to the totals.
func (p *parent) count(a attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range a.results {
		p.programs++
		p.steps += r.Steps
		p.captures += r.Captures
		for why, n := range r.Ended {
			p.ended[why] += n
		}
		if p.verbose {
			fmt.Fprintf(p.w, "%s %d: %d steps, %d captures\n", a.profile, r.Seed, r.Steps, r.Captures)
		}
	}
}

// failed reports a fault, and investigates it unless a similar one was seen before.
func (p *parent) failed(worker int, profile string, seed uint64, a attempt) {
	f := a.fault
	p.mu.Lock()
	sign := profile + ": " + f.signature()
	p.faults[sign]++
	first := p.faults[sign] == 1
	p.mu.Unlock()
	if !first {
		return
	}
	q := profileNamed(profile)
	if p.plant != "" {
		q = q.with("plant-" + p.plant)
	}
	c := p.look(worker, generate(q, seed), a)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.report(p)
}

// summary is the last line.
func (p *parent) summary() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, k := range p.faults {
		n += k
	}
	if n > 0 {
		fmt.Fprintln(p.w, "\nfaults:")
		for _, sign := range slices.Sorted(maps.Keys(p.faults)) {
			fmt.Fprintf(p.w, "  %d x %s\n", p.faults[sign], sign)
		}
	}
	var why []string
	errors := 0
	for _, text := range slices.Sorted(maps.Keys(p.ended)) {
		why = append(why, fmt.Sprintf("%d %s", p.ended[text], text))
		errors += p.ended[text]
	}
	ended := ""
	if errors > 0 {
		ended = fmt.Sprintf(" (%d ended with an error: %s)", errors, strings.Join(why, ", "))
	}
	fmt.Fprintf(p.w, "storm: %d programs, %d steps, %d captures%s, %d faults\n", p.programs, p.steps, p.captures, ended, n)
}
