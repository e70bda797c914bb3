//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A cause is a program that failed, with the results of the investigation.
type cause struct {
	program *program
	first   attempt // that failed
	failed  int     // of times
	times   int
	file    string // of the smallest that fails
	smaller *program
	last    attempt // of the smallest
}

// look repeats a program that has failed, and shrinks it.
func (p *parent) look(worker int, made *program, a attempt) *cause {
	c := &cause{program: made, first: a, smaller: made, last: a}
	s := &shrinker{parent: p, worker: worker, want: a.fault, repeat: 1, end: time.Now().Add(p.shrink)}
	if latest := p.end.Add(2 * p.shrink); s.end.After(latest) {
		s.end = latest // many faults late do not make it run on and on
	}
	for c.times < p.times && time.Now().Before(s.end) {
		c.times++
		if s.fails(made) {
			c.failed++
		}
	}
	if c.failed > 0 {
		s.repeat = min(3*c.times/c.failed, 60)
		c.smaller = s.shrink(made)
		if s.last.fault != nil {
			c.last = s.last
		}
	}
	c.file = filepath.Join(p.out, fmt.Sprintf("%s-%d.json", made.Profile, made.Seed))
	if err := os.MkdirAll(p.out, 0o777); err == nil {
		if err := errors.Join(c.smaller.save(c.file), c.last.save(c.file+".log")); err != nil {
			c.file = err.Error()
		}
	}
	return c
}

// report prints the cause.
func (c *cause) report(p *parent) {
	w := p.w
	fmt.Fprintf(w, "\nFAULT %v\n", c.first.fault)
	fmt.Fprintf(w, "seed %d of profile %s failed again %d of %d times\n", c.program.Seed, c.program.Profile, c.failed, c.times)
	lines := c.last.log
	if len(lines) > 24 {
		lines = lines[len(lines)-24:]
	}
	fmt.Fprintf(w, "the last steps:\n  %s\n", strings.Join(lines, "\n  "))
	if c.last.output != "" {
		fmt.Fprintf(w, "the child said:\n%s\n", short(c.last.output, 60))
	}
	fmt.Fprintf(w, "the smallest program that fails, of %d steps instead of %d, failed with %v\n", c.smaller.steps(), c.program.steps(), c.last.fault)
	if c.smaller.steps() <= 80 {
		c.smaller.print(w)
	}
	fmt.Fprintf(w, "run it by: storm -replay %s\nthe latest steps and all that the child said: %s.log\n\n", c.file, c.file)
}

// short returns the beginning of a text.
func short(s string, lines int) string {
	all := strings.SplitAfter(s, "\n")
	if len(all) > lines {
		all = append(all[:lines], "...\n")
	}
	return strings.Join(all, "")
}

// replayed runs the program of a file several times.
func (p *parent) replayed() (int, error) {
	made, err := readProgram(p.replay)
	if err != nil {
		return 0, err
	}
	failed := 0
	for range p.times {
		a := p.run(0, attempt{program: p.replay, count: 1, profile: made.Profile, time: time.Hour})
		if a.err != nil {
			return failed, a.err
		}
		p.count(a)
		if a.fault == nil {
			continue
		}
		if p.smaller {
			p.end = time.Now()
			p.look(0, made, a).report(p)
			return 1, nil
		}
		if failed++; failed == 1 {
			fmt.Fprintf(p.w, "FAULT %v\n%s\n%s\n", a.fault, strings.Join(a.log, "\n"), short(a.output, 200))
			if err := errors.Join(os.MkdirAll(p.out, 0o777), a.save(filepath.Join(p.out, filepath.Base(p.replay)+".log"))); err != nil {
				return failed, err
			}
		}
	}
	fmt.Fprintf(p.w, "storm: failed %d of %d times\n", failed, p.times)
	return failed, nil
}

// A shrinker makes a program smaller while it still fails in the same way.
type shrinker struct {
	*parent
	worker int
	want   *fault
	repeat int // how often a program runs before it counts as good
	end    time.Time
	last   attempt // that failed
}

// fails tells whether a program fails in the same way.
func (s *shrinker) fails(made *program) bool {
	file := filepath.Join(s.dir, fmt.Sprintf("program-%d.json", s.worker))
	if made.save(file) != nil {
		return false
	}
	processes, each := 1, s.repeat
	if profileNamed(made.Profile).ends {
		processes, each = each, 1
	}
	for range processes {
		if time.Now().After(s.end) {
			return false
		}
		a := s.run(s.worker, attempt{program: file, count: each, profile: made.Profile, time: max(time.Until(s.end), 0)})
		if a.fault != nil && a.fault.same(s.want) {
			s.last = a
			return true
		}
	}
	return false
}

// shrink removes goroutines, then kinds of steps, then single steps.
func (s *shrinker) shrink(made *program) *program {
	for before := -1; before != made.steps() && time.Now().Before(s.end); {
		before = made.steps()
		for i := len(made.Goroutines) - 1; i >= 0; i-- {
			made = s.try(made, without(made, func(g, _ int, _ step) bool { return g == i }))
		}
		seen := map[string]bool{}
		for _, g := range made.Goroutines {
			for _, x := range g {
				seen[x.Kind] = true
			}
		}
		for kind := range seen {
			made = s.try(made, without(made, func(_, _ int, x step) bool { return x.Kind == kind }))
		}
		for i := range made.Goroutines {
			made = s.steps(made, i)
		}
	}
	return s.bare(made)
}

// steps removes parts of a goroutine's steps: first halves, in the end single steps.
func (s *shrinker) steps(made *program, i int) *program {
	for size := len(made.Goroutines[i]) / 2; size > 0; size /= 2 {
		for from := len(made.Goroutines[i]) - size; from >= 0; from -= size {
			made = s.try(made, without(made, func(g, at int, _ step) bool { return g == i && at >= from && at < from+size }))
			from = min(from, len(made.Goroutines[i]))
		}
	}
	return made
}

// bare removes goroutines without steps, if the program fails without them.
func (s *shrinker) bare(made *program) *program {
	small := *made
	small.Goroutines = nil
	for _, g := range made.Goroutines {
		if len(g) > 0 {
			small.Goroutines = append(small.Goroutines, g)
		}
	}
	if len(small.Goroutines) < len(made.Goroutines) && s.fails(&small) {
		return &small
	}
	return made
}

// try returns the smaller program if it fails, else the original.
func (s *shrinker) try(made, smaller *program) *program {
	if smaller.steps() < made.steps() && s.fails(smaller) {
		return smaller
	}
	return made
}

// without returns the program without some steps.
func without(made *program, gone func(goroutine, at int, s step) bool) *program {
	small := *made
	small.Goroutines = make([][]step, len(made.Goroutines))
	for g, steps := range made.Goroutines {
		for at, s := range steps {
			if !gone(g, at, s) {
				small.Goroutines[g] = append(small.Goroutines[g], s)
			}
		}
	}
	return &small
}
