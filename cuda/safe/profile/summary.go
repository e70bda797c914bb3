package profile

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// A Stat is a row of a table: what has one name.
type Stat struct {
	Name            string
	Count           int
	Total, Min, Max time.Duration
	Bytes           uint64
}

// Stats sums up the work of a kind by name, the longest total first.
func (t *Timeline) Stats(kind Kind) []Stat {
	by := map[string]*Stat{}
	for i := range t.Work {
		if w := &t.Work[i]; w.Kind == kind {
			add(by, w.Name, w.End-w.Start, w.Bytes)
		}
	}
	return sorted(by)
}

// CallStats sums up the calls by name.
func (t *Timeline) CallStats() []Stat {
	by := map[string]*Stat{}
	for _, c := range t.Calls {
		add(by, c.Name, c.End-c.Start, 0)
	}
	return sorted(by)
}

// WaitStats sums up the waits by name.
func (t *Timeline) WaitStats() []Stat {
	by := map[string]*Stat{}
	for _, w := range t.Waits {
		add(by, w.Name, w.End-w.Start, 0)
	}
	return sorted(by)
}

// RangeStats sums up the time of ranges on the host, and the work that was enqueued in them, including the ranges
// inside them. A range inside another one of its name, as in a recursive function, is a part of that.
func (t *Timeline) RangeStats() (host, device []Stat) {
	h, d := map[string]*Stat{}, map[string]*Stat{}
	repeats := make([]bool, len(t.Ranges)) // inside of one of the same name
	for i, r := range t.Ranges {
		for p := r.Parent; p >= 0 && !repeats[i]; p = t.Ranges[p].Parent {
			repeats[i] = t.Ranges[p].Name == r.Name
		}
		if !repeats[i] {
			add(h, r.Name, r.End-r.Start, 0)
		}
	}
	for i := range t.Work {
		w := &t.Work[i]
		for r := w.Range; r >= 0; r = t.Ranges[r].Parent {
			if !repeats[r] {
				add(d, t.Ranges[r].Name, w.End-w.Start, 0)
			}
		}
	}
	return sorted(h), sorted(d)
}

func add(by map[string]*Stat, name string, d time.Duration, bytes uint64) {
	s := by[name]
	if s == nil {
		s = &Stat{Name: name, Min: d}
		by[name] = s
	}
	s.Count++
	s.Total += d
	s.Min, s.Max = min(s.Min, d), max(s.Max, d)
	s.Bytes += bytes
}

func sorted(by map[string]*Stat) (all []Stat) {
	for _, s := range by {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Stat) int { return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.Name, b.Name)) })
	return all
}

// Idle tells how much of the recording a device had nothing to do.
type Idle struct {
	Device  int
	Busy    time.Duration // with any work
	Before  time.Duration // until the first work
	Between time.Duration // between the first work and the last
	After   time.Duration // after the last
	Gaps    int           // that make up Between
	Longest Gap           // of them
}

// A Gap is a time in which a device had nothing to do.
type Gap struct {
	Start, End   time.Duration
	After, Until string // the names of the work before and behind it
}

// Idle tells how much each device with work was idle.
func (t *Timeline) Idle() []Idle {
	type device struct {
		Idle
		end  time.Duration
		last string
	}
	by := map[int]*device{}
	for i := range t.Work {
		w := &t.Work[i]
		d := by[w.Device]
		if d == nil {
			d = &device{Idle: Idle{Device: w.Device, Before: max(w.Start, 0)}, end: w.Start, last: ""}
			by[w.Device] = d
		}
		if gap := w.Start - d.end; gap > 0 {
			d.Between += gap
			d.Gaps++
			if gap > d.Longest.End-d.Longest.Start {
				d.Longest = Gap{d.end, w.Start, d.last, w.Name}
			}
		}
		if w.End > d.end {
			d.Busy += w.End - max(w.Start, d.end)
			d.end, d.last = w.End, w.Name
		}
	}
	var all []Idle
	for _, n := range slices.Sorted(maps.Keys(by)) {
		d := by[n]
		d.After = max(t.Duration-d.end, 0)
		all = append(all, d.Idle)
	}
	return all
}

// WriteSummary writes tables, as nsys stats does: how long the devices were idle, then kernels, copies,
// fills, launches of graphs, calls, waits and ranges, each by total time.
func (t *Timeline) WriteSummary(w io.Writer) error {
	var b bytes.Buffer // of fmt and tabwriter, only the last call would tell of an error
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "recorded %v, %d records lost\n", round(t.Duration), t.Lost)
	for _, d := range t.Idle() {
		percent := func(v time.Duration) string {
			return fmt.Sprintf("%.1f %%", 100*float64(v)/float64(max(t.Duration, 1)))
		}
		fmt.Fprintf(tw, "GPU %d: busy %v (%s); idle %v before the first work, %v between (%s, %d gaps), %v after the last\n",
			d.Device, round(d.Busy), percent(d.Busy), round(d.Before), round(d.Between), percent(d.Between), d.Gaps, round(d.After))
		if d.Gaps > 0 {
			fmt.Fprintf(tw, "GPU %d: the longest gap is %v at %v, after %s and before %s\n",
				d.Device, round(d.Longest.End-d.Longest.Start), round(d.Longest.Start), plain(d.Longest.After), plain(d.Longest.Until))
		}
	}
	for _, k := range []struct {
		kind  Kind
		title string
	}{{Kernel, "kernels"}, {Copy, "copies"}, {Fill, "fills"}} {
		table(tw, k.title, t.Stats(k.kind))
	}
	graphs := map[string]*Stat{}
	for _, l := range t.launches() {
		add(graphs, l.String(), l.end-l.start, 0)
	}
	table(tw, "launches of graphs, from the begin of the first node to the end of the last", sorted(graphs))
	table(tw, "calls", t.CallStats())
	table(tw, "waits of goroutines", t.WaitStats())
	host, device := t.RangeStats()
	table(tw, "ranges, on the host", host)
	table(tw, "ranges, the work enqueued in them", device)
	_ = tw.Flush() // into a buffer, which takes all
	_, err := w.Write(b.Bytes())
	return err
}

// plain is a name as a part of one line: it may come from clients of the program.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, name)
}

func table(w io.Writer, title string, all []Stat) {
	if len(all) == 0 {
		return
	}
	var sum time.Duration
	for _, s := range all {
		sum += s.Total
	}
	fmt.Fprintf(w, "\n%s\n%%\ttotal\tcount\tmean\tmin\tmax\tGB/s\t  name\n", title)
	for _, s := range all {
		speed := ""
		if s.Bytes > 0 {
			speed = fmt.Sprintf("%.3g", rate(s.Bytes, s.Total))
		}
		fmt.Fprintf(w, "%.1f\t%v\t%d\t%v\t%v\t%v\t%s\t  %s\n", 100*float64(s.Total)/float64(max(sum, 1)), round(s.Total), s.Count,
			round(s.Total/time.Duration(s.Count)), round(s.Min), round(s.Max), speed, plain(s.Name))
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Nanosecond) }
