package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// columns are the contestants that have figures, in their order.
func (r *results) columns() (names []string) {
	for _, c := range r.Contestants {
		for _, f := range r.Rows {
			if _, ok := f.Figure[c.Name]; ok {
				names = append(names, c.Name)
				break
			}
		}
	}
	return names
}

// cells are the table, with its head: C's time, those of the others as multiples of it, the times of the best peers,
// and the spread. A way of ours that loses to the best tracked peer is marked.
func (r *results) cells() [][]string {
	columns := r.columns()
	table := [][]string{append(append([]string{"row"}, columns...), "best tracked", "best untracked", "spread")}
	for _, f := range r.Rows {
		line := []string{f.Name}
		for _, name := range columns {
			cell := f.cell(name)
			if slices.Contains(safeWays, name) && f.loses(name, r.Crossing) {
				cell += " LOSES"
			}
			line = append(line, cell)
		}
		for _, peers := range [][]string{tracked, untracked} {
			best := f.best(peers)
			if best != "" {
				best = f.amount(best) + " " + best
			}
			line = append(line, best)
		}
		spread := ""
		if v := f.spread(); v >= 0 {
			spread = fmt.Sprintf("%.0f %%", 100*v)
		}
		table = append(table, append(line, spread))
	}
	return table
}

// cell is a contestant's figure, as a multiple of C's if there is one and if it is a time.
func (f *figures) cell(name string) string {
	ns, ok := f.Figure[name]
	c := f.Figure["C"]
	switch {
	case !ok:
		return ""
	case name == "C" || c == 0 || f.Unit == "":
		return f.amount(name)
	}
	return fmt.Sprintf("%.2f", ns/c)
}

// amount is a contestant's figure with its unit.
func (f *figures) amount(name string) string {
	v := f.Figure[name]
	if f.Unit == "" {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	v /= nanoseconds[f.Unit]
	digits := 2
	switch {
	case v >= 100:
		digits = 0
	case v >= 10:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + f.Unit
}

// head says where and when, and who took part.
func (r *results) head() string {
	var b strings.Builder
	driver := "CUDA " + r.CUDA
	if r.Driver != "" {
		driver = "driver " + r.Driver + ", " + driver
	}
	fmt.Fprintf(&b, "%s, %s, %d CPUs, %s, %s\n", r.GPU, driver, r.CPUs, r.Go, r.Date)
	return b.String()
}

// text is the table for a terminal, with what there is to say about it.
func (r *results) text() string {
	var b strings.Builder
	b.WriteString(r.head())
	for _, c := range r.Contestants {
		if c.Absent != "" {
			fmt.Fprintf(&b, "%s: absent: %s\n", c.Name, c.Absent)
		} else {
			fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Version)
		}
	}
	fmt.Fprintf(&b, "an empty cgo call: %.0f ns\n\n", r.Crossing)
	b.WriteString(aligned(r.cells()))
	if limited := r.limited(); limited != nil {
		b.WriteString("\n" + aligned(limited))
	}
	for _, e := range explained(r.losses()) {
		fmt.Fprintf(&b, "\n%s\n", e.why)
		for _, l := range e.losses {
			fmt.Fprintf(&b, "  %s\n", l)
		}
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n")
	}
	for _, n := range r.noted() {
		fmt.Fprintf(&b, "%s\n", n)
	}
	return b.String()
}

// aligned is a table for a terminal.
func aligned(table [][]string) string {
	widths := make([]int, len(table[0]))
	for _, line := range table {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range table {
		text := ""
		for i, cell := range line {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				text += cell + space
			} else {
				text += "  " + space + cell
			}
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	return b.String()
}

// markdown is a table for the page.
func markdown(table [][]string) string {
	var b strings.Builder
	for i, line := range table {
		for k, cell := range line {
			cell = strings.ReplaceAll(strings.ReplaceAll(cell, " LOSES", " **loses**"), "MISSED", "**missed**")
			line[k] = escaped(cell)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(line)))
		}
	}
	return b.String()
}
