package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// results has the figures of all rounds, by contestant and size.
type results []result

type result struct {
	name string
	mode mode
	figures
}

func (r *results) add(c contestant, all []figures) {
	for _, f := range all {
		*r = append(*r, result{c.name, c.mode, f})
	}
}

// kinds are what is measured of a size.
var kinds = []struct {
	name string
	of   func(*figures) float64
}{
	{"and wait", func(f *figures) float64 { return f.Wait }},
	{"back to back", func(f *figures) float64 { return f.Many }},
	{"group of 5", func(f *figures) float64 { return f.Group }},
	{"graph, and wait", func(f *figures) float64 { return f.Graph }},
}

// span is a figure in the fastest and in the slowest round, 0 if there is none.
type span struct{ least, most float64 }

func (r results) span(name string, m mode, bytes int, of func(*figures) float64) (s span) {
	for i := range r {
		if v := of(&r[i].figures); r[i].name == name && r[i].mode == m && r[i].Bytes == bytes && v > 0 {
			if s.least == 0 || v < s.least {
				s.least = v
			}
			s.most = max(s.most, v)
		}
	}
	return s
}

// String is the fastest round's figure, with the slowest round's if that is far from it.
func (s span) String() string {
	if s.most > 1.5*s.least {
		return micro(s.least) + " to " + micro(s.most)
	}
	return micro(s.least)
}

// sizes are those that were measured.
func (r results) sizes() (all []int) {
	for i := range r {
		if !slices.Contains(all, r[i].Bytes) {
			all = append(all, r[i].Bytes)
		}
	}
	slices.Sort(all)
	return all
}

// markdown is a table for each mode.
func (r results) markdown(gpus int) string {
	var b strings.Builder
	for _, m := range modes {
		fmt.Fprintf(&b, "%d GPUs, %s, in µs:\n\n| all-reduce of | | C | torch.distributed | package collective | to C | to torch |\n|---|---|---|---|---|---|---|\n", gpus, m)
		for _, bytes := range r.sizes() {
			for _, k := range kinds {
				c, torch, ours := r.span(inC, m, bytes, k.of), r.span(inTorch, m, bytes, k.of), r.span(inGo, m, bytes, k.of)
				fmt.Fprintf(&b, "| %s | %s | %v | %v | %v | %s | %s |\n", size(bytes), k.name, c, torch, ours, ratio(ours.least, c.least), ratio(ours.least, torch.least))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func micro(us float64) string {
	switch {
	case us == 0:
		return ""
	case us < 100:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

func ratio(ours, other float64) string {
	if ours == 0 || other == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ours/other)
}

func size(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}

// missing returns an error if a contestant has no figures.
func (r results) missing(all []contestant) error {
	var errs []error
	for _, c := range all {
		if !slices.ContainsFunc(r, func(r result) bool { return r.name == c.name && r.mode == c.mode }) {
			errs = append(errs, fmt.Errorf("%s, %s: no figures", c.name, c.mode))
		}
	}
	return errors.Join(errs...)
}

// replace puts the tables between the marks of a page.
func replace(file string, gpus int, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mark := fmt.Sprintf("<!-- ranks %d -->\n", gpus)
	before, rest, begun := strings.Cut(string(page), mark)
	_, after, ended := strings.Cut(rest, "<!-- end -->")
	if !begun || !ended {
		return fmt.Errorf("%s has no %q, or no end after it", file, strings.TrimSpace(mark))
	}
	return os.WriteFile(file, []byte(before+mark+text+"<!-- end -->"+after), 0o666)
}
