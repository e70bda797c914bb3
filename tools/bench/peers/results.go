package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
)

// results are those of a run, as -json writes them.
type results struct {
	GPU         string        `json:"gpu"`
	Driver      string        `json:"driver,omitempty"` // version of the kernel module
	CUDA        string        `json:"cuda"`             // of the driver
	CPUs        int           `json:"cpus"`
	Go          string        `json:"go"`
	Date        string        `json:"date"`
	Starts      int           `json:"starts"` // of each contestant
	Contestants []participant `json:"contestants"`
	Crossing    float64       `json:"crossingNs"` // of an empty cgo call
	Rows        []*figures    `json:"rows"`
	Notes       []note        `json:"notes,omitempty"`
}

// participant is a contestant, also one that took no part.
type participant struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Absent  string `json:"absent,omitempty"` // why
}

// figures are those of a row.
type figures struct {
	Name   string               `json:"name"`
	Unit   string               `json:"unit,omitempty"` // to print them in
	Figure map[string]float64   `json:"figure"`         // ns, or a number, by contestant
	Rounds map[string][]float64 `json:"rounds"`
	Runs   []map[string]float64 `json:"runs,omitempty"` // the figure of each start, by contestant
}

// note says why a figure is missing, or odd.
type note struct {
	Contestant string `json:"contestant"`
	Row        string `json:"row"`
	Why        string `json:"why"`
	Failed     bool   `json:"failed,omitempty"`
}

// add takes in the rounds that a row had in one start, beside those that it has.
func (r *results) add(row row, rounds map[string][]float64) {
	if len(rounds) == 0 {
		return
	}
	i := slices.IndexFunc(r.Rows, func(f *figures) bool { return f.Name == row.name })
	if i < 0 {
		i = len(r.Rows)
		r.Rows = append(r.Rows, &figures{Name: row.name, Unit: row.unit, Figure: map[string]float64{}, Rounds: map[string][]float64{}})
	}
	f := r.Rows[i]
	run := map[string]float64{}
	for name, values := range rounds {
		f.Rounds[name] = append(f.Rounds[name], values...)
		f.Figure[name] = row.figure(f.Rounds[name])
		run[name] = row.figure(values)
	}
	f.Runs = append(f.Runs, run)
}

// note takes a reason in, once. That a contestant lacks an item is none.
func (r *results) note(n note) {
	if n.Why != none && !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// failed tells what C or one of our own ways could not do.
func (r *results) failed() error {
	var errs []error
	for _, c := range r.Contestants {
		if c.Absent != "" && !foreign(c.Name) && c.Name != "C" { // which may lack its compiler
			errs = append(errs, fmt.Errorf("%s: %s", c.Name, c.Absent))
		}
	}
	for _, n := range r.Notes {
		if n.Failed && !foreign(n.Contestant) {
			errs = append(errs, fmt.Errorf("%s, %s: %s", n.Contestant, n.Row, n.Why))
		}
	}
	return errors.Join(errs...)
}

// noted are the notes, those of one reason and rows together.
func (r *results) noted() (all []string) {
	rows := map[[2]string]string{} // by contestant and reason
	for _, n := range r.Notes {
		key := [2]string{n.Contestant, n.Why}
		if rows[key] != "" {
			rows[key] += "; "
		}
		rows[key] += n.Row
	}
	who := map[string]string{}
	for _, n := range r.Notes {
		key := [2]string{n.Contestant, n.Why}
		if rows[key] == "" {
			continue // listed
		}
		text := n.Why + " (" + rows[key] + ")"
		delete(rows, key)
		if who[text] == "" {
			all = append(all, text)
			who[text] = n.Contestant
		} else {
			who[text] += ", " + n.Contestant
		}
	}
	for i, text := range all {
		all[i] = who[text] + ": " + text
	}
	return all
}

// runs are the figures of each start, or the only ones.
func (f *figures) runs() []map[string]float64 {
	if len(f.Runs) == 0 { // a file of before
		return []map[string]float64{f.Figure}
	}
	return f.Runs
}

// best is the fastest of some peers in a row, "" if there is none or if the row is no time.
func (f *figures) best(peers []string) (name string) {
	if f.Unit == "" {
		return ""
	}
	return fastest(f.Figure, peers)
}

func fastest(run map[string]float64, of []string) (name string) {
	for _, other := range of {
		if ns, ok := run[other]; ok && (name == "" || ns < run[name]) {
			name = other
		}
	}
	return name
}

// always tells whether one of our ways is too slow in each start, given its figure and that of the fastest of some peers.
func (f *figures) always(way string, peers []string, slow func(ours, best float64) bool) bool {
	if f.Unit == "" {
		return false
	}
	for _, run := range f.runs() {
		best, ours := fastest(run, peers), run[way]
		if best == "" || ours == 0 || !slow(ours, run[best]) {
			return false
		}
	}
	return true
}

// noise is by how many nanoseconds a call may be slower by chance.
const noise = 15

// loses tells whether one of our ways is behind the best tracked peer by more than 5 %, and by more than
// a crossing of cgo and noise, in each start.
func (f *figures) loses(way string, crossing float64) bool {
	return f.always(way, tracked, func(ours, best float64) bool { return ours > 1.05*best && ours > best+crossing+noise })
}

// spread is by how much the starts differ: of our ways and the best peers, the one that differs most. It is -1 for one start.
func (f *figures) spread() float64 {
	if len(f.Runs) < 2 || f.Unit == "" {
		return -1
	}
	most := 0.0
	for _, name := range append([]string{f.best(tracked), f.best(untracked)}, safeWays...) {
		least, largest := math.Inf(1), 0.0
		for _, run := range f.Runs {
			if v := run[name]; v > 0 {
				least, largest = min(least, v), max(largest, v)
			}
		}
		if largest > 0 {
			most = max(most, largest/least-1)
		}
	}
	return most
}

// loss is a row where one of our ways is behind.
type loss struct {
	*figures
	way, best, why string // why is "" if reasons says nothing
}

// losses are all of them.
func (r *results) losses() []loss {
	var all []loss
	for _, f := range r.Rows {
		for _, way := range safeWays {
			if f.loses(way, r.Crossing) {
				all = append(all, loss{f, way, f.best(tracked), reason(way, f.Name)})
			}
		}
	}
	return all
}

// readResults reads a file that -json wrote.
func readResults(file string) (*results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	const want = "want a file that peers -json wrote"
	r := &results{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", file, err, want)
	}
	if r.GPU == "" || len(r.Rows) == 0 || len(r.Contestants) == 0 || slices.Contains(r.Rows, nil) {
		return nil, fmt.Errorf("%s: it lacks the GPU, contestants or rows: %s", file, want)
	}
	return r, nil
}

func (r *results) writeFile(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}
