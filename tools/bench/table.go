package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// table prints results as they come.
type table struct {
	w     io.Writer
	width int // of the names
}

func newTable(w io.Writer, rows []row) *table {
	t := &table{w: w}
	for _, r := range rows {
		t.width = max(t.width, len(r.name))
	}
	return t
}

// begin prints what is above the rows.
func (t *table) begin(h *header) error {
	version := "CUDA " + h.CUDA
	if h.Driver != "" {
		version = "driver " + h.Driver + ", " + version
	}
	_, err := fmt.Fprintf(t.w, "%s, %s (%s)\n%d CPUs, %s, %s\n\n", h.GPU, version, h.Library, h.CPUs, h.Go, h.Date)
	if err != nil {
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
	var targets []string
	for _, v := range r.Targets {
		targets = append(targets, v.String())
	}
	return t.cells(r.Name, r.C.ns(), r.Raw.ns(), r.Safe.ns(), ratio, more, r.Raw.allocs()+"/"+r.Safe.allocs(), bandwidth, strings.Join(targets, ", "))
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
