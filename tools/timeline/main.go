// Timeline draws a part of a trace that package profile has written:
//
//	timeline -from 12ms -for 2ms trace.json > trace.svg
//
// It is for pages; to look into a trace, open it with Perfetto.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "timeline:", err)
			os.Exit(1)
		}
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("timeline", flag.ContinueOnError)
	flags.SetOutput(stderr)
	from := flags.Duration("from", 0, "where to begin, from the start of the recording")
	length := flags.Duration("for", time.Millisecond, "how much to draw")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *length <= 0 {
		return errors.New("usage: timeline [-from TIME] [-for TIME] trace.json")
	}
	data, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	var t trace
	if err := json.Unmarshal(data, &t); err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	return t.draw(stdout, *from, *from+*length)
}

// trace is a trace in the format that Perfetto and chrome://tracing read.
type trace struct{ TraceEvents []event }

type event struct {
	Ph, Name, Cat string
	PID, TID, ID  int
	TS, Dur       float64 // microseconds
	Args          map[string]any
}

type place struct{ pid, tid int }

// track is a line of bars, with how deep they nest.
type track struct {
	place
	name string
	bars []bar
	deep int
}

type bar struct {
	event
	depth int
}

const (
	width, left, row, gap = 960, 150, 18, 8
	style                 = `text{font:11px sans-serif;fill:#222}.t{fill:#555}.range{fill:#cfd8dc}.call{fill:#90a4ae}.wait{fill:#eceff1}.kernel{fill:#66bb6a}.copy{fill:#42a5f5}.DtoH{fill:#ffa726}.fill{fill:#ab47bc}.graph{fill:#26a69a}.cupti{fill:#ef9a9a}path{stroke:#b71c1c;fill:none;stroke-width:.6}`
)

// tracks are those that have bars between two times, the host's first.
func (t trace) tracks(from, to float64) []*track {
	names, processes, by := map[place]string{}, map[int]string{}, map[place]*track{}
	for _, e := range t.TraceEvents {
		at := place{e.PID, e.TID}
		name, _ := e.Args["name"].(string)
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			names[at] = name
		case e.Ph == "M" && e.Name == "process_name":
			processes[e.PID] = name
		case e.Ph == "X" && e.TS < to && e.TS+e.Dur > from:
			if by[at] == nil {
				by[at] = &track{place: at}
			}
			by[at].bars = append(by[at].bars, bar{event: e})
		}
	}
	var all []*track
	for at, k := range by {
		k.name = names[at]
		if k.name == "" {
			k.name = fmt.Sprintf("thread %d", at.tid)
		}
		if at.pid > 1 {
			k.name = processes[at.pid] + ": " + k.name
		}
		k.nest()
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *track) int { return cmp.Or(a.pid-b.pid, a.tid-b.tid) })
	return all
}

// nest finds how deep each bar lies in others.
func (k *track) nest() {
	slices.SortStableFunc(k.bars, func(a, b bar) int { return cmp.Or(cmp.Compare(a.TS, b.TS), cmp.Compare(b.Dur, a.Dur)) })
	var around []float64 // their ends
	for i, b := range k.bars {
		for len(around) > 0 && around[len(around)-1] <= b.TS {
			around = around[:len(around)-1]
		}
		k.bars[i].depth = len(around)
		k.deep = max(k.deep, len(around)+1)
		around = append(around, b.TS+b.Dur)
	}
}

// draw writes the part of the trace between two times as SVG.
func (t trace) draw(w io.Writer, begin, end time.Duration) error {
	from, to := begin.Seconds()*1e6, end.Seconds()*1e6
	x := func(us float64) float64 { return left + (min(max(us, from), to)-from)/(to-from)*(width-left) }
	var b strings.Builder
	tracks := t.tracks(from, to)
	if len(tracks) == 0 {
		return fmt.Errorf("the trace has nothing between %v and %v", begin, end)
	}
	y := 24
	tops := map[place]int{}
	for _, k := range tracks {
		tops[k.place] = y
		fmt.Fprintf(&b, `<text class="t" x="4" y="%d">%s</text>`+"\n", y+13, escaped(k.name))
		for _, v := range k.bars {
			wide := max(x(v.TS+v.Dur)-x(v.TS), 0.5)
			fmt.Fprintf(&b, `<rect class="%s %s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s, %.1f µs</title></rect>`+"\n",
				escaped(v.Cat), class(v), x(v.TS), y+v.depth*row, wide, row-2, escaped(v.Name), v.Dur)
			if fit := int(wide / 6.2); fit >= len(v.Name) {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", x(v.TS)+2, y+v.depth*row+12, escaped(v.Name))
			}
		}
		y += k.deep*row + gap
	}
	t.arrows(&b, tops, x, from, to)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d"><style>%s</style><rect width="100%%" height="100%%" fill="#fff"/>`+"\n"+
		`<text class="t" x="%d" y="14">%v</text><text class="t" x="%d" y="14" text-anchor="end">%v</text>`+"\n%s</svg>\n",
		width, y, style, left, begin, width-4, end, b.String())
	return err
}

// escaped is a text of the trace within XML, which has no control characters.
func escaped(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text))
}

// class tells copies to the host from others by their colour.
func class(v bar) string {
	if v.Name == "DtoH" {
		return v.Name
	}
	return ""
}

// arrows draws those whose both ends are drawn.
func (t trace) arrows(b *strings.Builder, tops map[place]int, x func(float64) float64, from, to float64) {
	starts := map[int]event{}
	for _, e := range t.TraceEvents {
		if e.TS < from || e.TS > to {
			continue
		}
		switch e.Ph {
		case "s":
			starts[e.ID] = e
		case "f":
			s, ok := starts[e.ID]
			if top, there := tops[place{e.PID, e.TID}]; ok && there {
				fmt.Fprintf(b, `<path d="M%.1f %d L%.1f %d"/>`+"\n", x(s.TS), tops[place{s.PID, s.TID}]+row-2, x(e.TS), top)
			}
		}
	}
}
