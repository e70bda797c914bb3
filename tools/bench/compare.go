package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// noise is by how many nanoseconds an operation may differ between runs by chance.
const noise = 15

// share is a figure as a multiple of another figure of the same run.
type share struct {
	of, ratio string // "event record", "safe/C"
	value     float64
	whole     float64 // ns that a share of 1 stands for, 0 where it is no time
	more      bool    // is better
}

func (s *share) name() string { return s.of + ", " + s.ratio }

// readReport reads a file that -json wrote.
func readReport(file string) (*report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	const want = "want a file that bench -json wrote"
	r := &report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", file, err, want)
	}
	if r.Header.GPU == "" || len(r.Rows)+len(r.Groups) == 0 {
		return nil, fmt.Errorf("%s: it has no header, or neither rows nor groups: %s", file, want)
	}
	for _, s := range r.shares() {
		if !(s.value > 0) {
			return nil, fmt.Errorf("%s: %s is %g: %s", file, s.name(), s.value, want)
		}
	}
	return r, nil
}

// shares are all ratios of a run, in its order.
func (r *report) shares() []*share {
	var all []*share
	for _, row := range r.Rows {
		if row == nil || row.C == nil {
			continue
		}
		for _, way := range []struct {
			ratio string
			*figures
		}{{"raw/C", row.Raw}, {"safe/C", row.Safe}} {
			if way.figures != nil {
				all = append(all, &share{of: row.Name, ratio: way.ratio, value: way.Median / row.C.Median, whole: row.C.Median})
			}
		}
	}
	for _, p := range r.Groups {
		if p != nil {
			all = append(all, p.shares()...)
		}
	}
	return all
}

func (p *grouped) shares() []*share {
	var all []*share
	for _, l := range p.Lines {
		for _, column := range p.Columns {
			if l == nil {
				continue
			}
			value, measured := l.Values[column]
			part := strings.TrimSuffix(strings.TrimSuffix(column, "/C"), "/raw")
			if !measured || part == column {
				continue
			}
			all = append(all, &share{
				of: p.Name + ": " + l.name(), ratio: column,
				value: value, whole: p.nanoseconds(l, part) / value, more: part == "GB/s",
			})
		}
	}
	return all
}

// nanoseconds is what a line has in the column of times whose name begins with part, 0 if
// there is none.
func (p *grouped) nanoseconds(l *line, part string) float64 {
	for _, column := range p.Columns {
		unit, ok := strings.CutPrefix(column, part+" ")
		switch unit, _, _ := strings.Cut(unit, " "); {
		case ok && unit == "µs":
			return 1e3 * l.Values[column]
		case ok && unit == "ms":
			return 1e6 * l.Values[column]
		}
	}
	return 0
}

// only leaves out rows and groups that are not wanted.
func (r *report) only(wanted choice) *report {
	less := &report{Header: r.Header}
	for _, row := range r.Rows {
		if wanted.rows != nil && row != nil && (row.Name == emptyCall || wanted.rows.MatchString(row.Name)) {
			less.Rows = append(less.Rows, row)
		}
	}
	for _, p := range r.Groups {
		if wanted.groups != nil && p != nil && wanted.groups.MatchString(p.Name) {
			less.Groups = append(less.Groups, p)
		}
	}
	return less
}

// compare prints which ratios differ from those of an earlier run by more than percent
// and by more than noise, and which only one of the runs has. The error counts what got
// slower.
func (r *report) compare(w io.Writer, old *report, percent float64) error {
	h := &old.Header
	text := fmt.Sprintf("\ncompared with %s, %s, %s\n", h.GPU, h.version(), h.Date)
	if h.GPU != r.Header.GPU || h.version() != r.Header.version() {
		text += "another GPU or driver: ratios differ for that reason as well\n"
	}
	before, now := old.shares(), r.shares()
	slower, changes := 0, ""
	for _, s := range now {
		i := slices.IndexFunc(before, func(b *share) bool { return b.name() == s.name() })
		if i < 0 {
			continue
		}
		if what := s.since(before[i], percent); what != "" {
			changes += fmt.Sprintf("%s  %s: %.2f, was %.2f\n", what, s.name(), s.value, before[i].value)
			if what == isSlower {
				slower++
			}
		}
	}
	text += changes + missing("only now", now, before) + missing("only before", before, now)
	if changes == "" {
		text += fmt.Sprintf("no ratio differs by more than %g %% and %d ns\n", percent, noise)
	}
	_, err := io.WriteString(w, text)
	if slower > 0 {
		err = errors.Join(err, fmt.Errorf("ratios that got worse by more than %g %% since %s: %d", percent, h.Date, slower))
	}
	return err
}

const isSlower, isFaster = "slower", "faster"

// since says whether a share got worse or better, "" if neither.
func (s *share) since(before *share, percent float64) string {
	if by := s.value - before.value; s.whole > 0 && max(by, -by)*s.whole <= noise {
		return ""
	}
	times, most := s.value/before.value, 1+percent/100
	if s.more {
		times = 1 / times
	}
	switch {
	case times > most:
		return isSlower
	case times < 1/most:
		return isFaster
	}
	return ""
}

// missing says what of these shares is not among the others: whole rows, or single ratios.
func missing(when string, these, others []*share) (text string) {
	said := ""
	for _, s := range these {
		row := slices.ContainsFunc(others, func(o *share) bool { return o.of == s.of })
		switch {
		case !row && s.of != said:
			text += fmt.Sprintf("%s  %s\n", when, s.of)
			said = s.of
		case row && !slices.ContainsFunc(others, func(o *share) bool { return o.name() == s.name() }):
			text += fmt.Sprintf("%s  %s\n", when, s.name())
		}
	}
	return text
}
