package main

import (
	"fmt"
	"regexp"
)

// limits are what one call after the other by package safe may take beside the best untracked peer: a multiple, or
// nanoseconds more.
var limits = []struct {
	rows  string
	times float64
	more  float64
}{
	{`^launch, |^100 launches`, 1.05, 0},
	{`: capture and instantiate$|: instantiate$`, 1.10, 0},
	{`^graph of \d+: launch$`, 0, 150},
	{`^pipeline`, 1.10, 0},
	{`^async alloc`, 1.30, 0},
}

// limited are the rows that have a limit: with both figures, the limit, and what became of it.
func (r *results) limited() (table [][]string) {
	for _, f := range r.Rows {
		best := f.best(untracked)
		for _, l := range limits {
			if best == "" || f.Figure["safe"] == 0 || !regexp.MustCompile(l.rows).MatchString(f.Name) {
				continue
			}
			text := fmt.Sprintf("%.2f", l.times)
			slow := func(ours, best float64) bool { return ours > l.times*best }
			if l.more > 0 {
				text = fmt.Sprintf("%.0f ns more", l.more)
				slow = func(ours, best float64) bool { return ours > best+l.more }
			}
			verdict := "kept"
			if f.always("safe", untracked, slow) {
				verdict = "MISSED"
			}
			ratio := fmt.Sprintf("%.2f", f.Figure["safe"]/f.Figure[best])
			table = append(table, []string{f.Name, f.amount("safe"), f.amount(best) + " " + best, ratio, text, verdict})
		}
	}
	if table != nil {
		table = append([][]string{{"row", "safe", "best untracked peer", "safe is", "limit", "it is"}}, table...)
	}
	return table
}
