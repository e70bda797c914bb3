package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table prints results as they come.
type table struct {
	w        io.Writer
	width    int  // of the names
	markdown bool // for the groups
}

func newTable(w io.Writer, rows []row) *table {
	t := &table{w: w}
	for _, r := range rows {
		t.width = max(t.width, len(r.name))
	}
	return t
}

// begin prints where and when.
func (t *table) begin(h *header) error {
	_, err := fmt.Fprintf(t.w, "%s, %s (%s)\n%d CPUs, %s, %s\n", h.GPU, h.version(), h.Library, h.CPUs, h.Go, h.Date)
	return err
}

// columns prints what the figures of a row are.
func (t *table) columns() error {
	if _, err := fmt.Fprintln(t.w); err != nil {
		return err
	}
	return t.cells("", "C ns", "raw ns", "safe ns", "safe/C", "safe-raw", "allocs", "GB/s", "targets")
}

// line prints a row. The allocations are those of the raw and the safe way, the
// bandwidths those of C and the safe way.
func (t *table) line(r *result) error {
	if r.Error != "" {
		_, err := fmt.Fprintf(t.w, "%-*s  %s\n", t.width, r.Name, r.Error)
		return err
	}
	var ratio, more, bandwidth string
	if r.C != nil && r.Safe != nil {
		ratio = fmt.Sprintf("%.2f", r.Safe.Median/r.C.Median)
	}
	if r.Raw != nil && r.Safe != nil {
		more = digits(r.Safe.Median - r.Raw.Median)
	}
	if r.Bytes > 0 {
		bandwidth = r.C.bandwidth(r.Bytes) + "/" + r.Safe.bandwidth(r.Bytes)
	}
	return t.cells(r.Name, r.C.ns(), r.Raw.ns(), r.Safe.ns(), ratio, more, r.Raw.allocs()+"/"+r.Safe.allocs(), bandwidth, verdicts(r.Targets))
}

func (t *table) cells(name, c, raw, safe, ratio, more, allocs, bandwidth, targets string) error {
	line := fmt.Sprintf("%-*s %10s %10s %10s %7s %9s %7s %13s  %s", t.width, name, c, raw, safe, ratio, more, allocs, bandwidth, targets)
	_, err := fmt.Fprintln(t.w, strings.TrimRight(line, " "))
	return err
}

func digits(ns float64) string {
	if ns >= 1000 || ns <= -1000 {
		return fmt.Sprintf("%.0f", ns)
	}
	return fmt.Sprintf("%.1f", ns)
}

func (f *figures) ns() string {
	if f == nil {
		return ""
	}
	return digits(f.Median)
}

func (f *figures) allocs() string {
	if f == nil {
		return "-"
	}
	return strconv.FormatFloat(f.Allocs, 'f', -1, 64)
}

func (f *figures) bandwidth(bytes int) string {
	if f == nil {
		return "-"
	}
	return strconv.FormatFloat(float64(bytes)/f.Median, 'g', 3, 64)
}

func verdicts(targets []verdict) string {
	var texts []string
	for _, v := range targets {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, ", ")
}

// group prints a group, as a table of its own.
func (t *table) group(p *grouped) error {
	if p.Error != "" {
		_, err := fmt.Fprintf(t.w, "\n%s  %s\n", p.Name, p.Error)
		return err
	}
	if t.markdown {
		return t.groupMarkdown(p)
	}
	width := utf8.RuneCountInString(p.Name)
	for _, l := range p.Lines {
		width = max(width, utf8.RuneCountInString(l.name()))
	}
	lines := []string{fmt.Sprintf("\n%-*s", width, p.Name)}
	for _, l := range p.Lines {
		lines = append(lines, fmt.Sprintf("%-*s", width, l.name()))
	}
	for _, c := range p.Columns {
		lines[0] += fmt.Sprintf("  %7s", c)
		for i, l := range p.Lines {
			lines[1+i] += fmt.Sprintf("  %*s", max(7, utf8.RuneCountInString(c)), l.value(c))
		}
	}
	lines[0] += "  targets"
	for i, l := range p.Lines {
		lines[1+i] = strings.TrimRight(lines[1+i]+"  "+verdicts(l.Targets), " ")
	}
	_, err := fmt.Fprintln(t.w, strings.Join(lines, "\n"))
	return err
}

func (t *table) groupMarkdown(p *grouped) error {
	lines := []string{
		fmt.Sprintf("\n| %s | %s | targets |", p.Name, strings.Join(p.Columns, " | ")),
		"|" + strings.Repeat("---|", len(p.Columns)+2),
	}
	for _, l := range p.Lines {
		line := "| " + l.name()
		for _, c := range p.Columns {
			line += " | " + l.value(c)
		}
		lines = append(lines, line+" | "+verdicts(l.Targets)+" |")
	}
	_, err := fmt.Fprintln(t.w, strings.Join(lines, "\n"))
	return err
}

// value is a column with some three digits, "" where nothing was measured.
func (l *line) value(column string) string {
	v, ok := l.Values[column]
	switch {
	case !ok:
		return ""
	case column == "threads" || math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
