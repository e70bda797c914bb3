package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// group is a scenario, done in several ways: not one call, but what a program
// does with many.
type group struct {
	name    string
	columns []string // the measured values, with the unit
	plot    []string // those of the columns that are drawn
	run     func(g *gpu, e effort) ([]*line, error)
}

// groups are all scenarios, in this order.
var groups = []group{waiting, steps, libraries, saturated, waiters, late, hostFunctions, replays, builds, bulkBuilds, growth, many, peers}

// effort is how much is done.
type effort struct {
	meter meter
	short bool
}

// of is full, or short where it is only to be seen that it works.
func (e effort) of(full, short int) int {
	if e.short {
		return short
	}
	return full
}

// line is what was measured of one way of doing something.
type line struct {
	Case    string             `json:"case"` // "" where the group has but one
	Way     string             `json:"way"`
	Values  map[string]float64 `json:"values"` // by column
	Targets []verdict          `json:"targets,omitempty"`
}

func newLine(c, way string) *line {
	return &line{Case: c, Way: way, Values: map[string]float64{}}
}

func (l *line) name() string {
	if l.Case == "" {
		return l.Way
	}
	return l.Case + ", " + l.Way
}

// ratio adds what a column is as a share of the same column of another line.
func (l *line) ratio(name, column string, to *line) {
	if whole := to.Values[column]; whole > 0 {
		l.Values[name] = l.Values[column] / whole
	}
}

// atMost adds a target: what a column should not exceed.
func (l *line) atMost(column string, most float64) {
	v, measured := l.Values[column]
	l.Targets = append(l.Targets, verdict{
		Target: fmt.Sprintf("%s <= %g", column, most), Met: measured && v <= most, Column: column, Most: most,
	})
}

// atLeast adds a target: what a column should reach.
func (l *line) atLeast(column string, least float64) {
	v, measured := l.Values[column]
	l.Targets = append(l.Targets, verdict{
		Target: fmt.Sprintf("%s >= %g", column, least), Met: measured && v >= least, Column: column, Least: least,
	})
}

// limit is the target of a column, 0 where there is none.
func (l *line) limit(column string) float64 {
	for _, v := range l.Targets {
		if v.Column == column {
			return v.Most + v.Least
		}
	}
	return 0
}

// grouped is what was measured of a group.
type grouped struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Lines   []*line  `json:"lines"`
	Error   string   `json:"error,omitempty"`

	plot        []string
	unsupported bool
}

// measure does what there is in the group. The error is also in the result.
func (p *group) measure(g *gpu, e effort) (*grouped, error) {
	result := &grouped{Name: p.name, Columns: p.columns, plot: p.plot}
	lines, err := p.run(g, e)
	if err == nil {
		err = g.missing
	}
	if err != nil {
		result.Error, result.unsupported = err.Error(), unsupported(err)
		return result, err
	}
	result.Lines = lines
	return result, nil
}

// percentile is the least of the values that p percent of them do not exceed.
func percentile(ns []int64, p float64) int64 {
	sorted := slices.Sorted(slices.Values(ns))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func micros[N int64 | time.Duration](ns N) float64 { return float64(ns) / 1000 }

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
