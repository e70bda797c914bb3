package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The plot has a line for each row, on which each contestant is a dot. The unit of all lengths is a
// pixel.
const (
	lineHeight = 18
	labels     = 320 // the width of the names
	decade     = 170 // the width of a factor of 10
	margin     = 16
)

// least and most are the multiples of C's time that the plot shows. Those beyond are drawn at the
// edge.
const least, most = 0.03, 30.0

// dots are the contestants that are drawn, the last ones above the others.
var dots = []struct{ name, color string }{
	{"cudarc", "#c98a2b"}, {"cudarc-nt", "#e3c48d"}, {"core", "#a45a9a"}, {"bindings", "#d0a8ca"}, {"cupy", "#b5483f"}, {"torch", "#e09a94"},
	{"raw", "#88a0bd"}, {"replay", "#bfe0cf"}, {"bulk", "#7cba9c"}, {"safe", "#2a7f62"},
}

// svg draws all times as multiples of C's.
func (r *results) svg() string {
	var b strings.Builder
	y := margin + lineHeight
	text := func(x float64, y int, how, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d"%s>%s</text>`+"\n", x, y, how, html.EscapeString(text))
	}
	text(margin, y, ` font-weight="bold"`, "time as a multiple of C's")
	y += lineHeight
	x := margin
	for _, d := range dots {
		if slices.Contains(r.columns(), d.name) {
			fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="5" fill="%s"/>`+"\n", x+5, y-4, d.color)
			text(float64(x+14), y, "", d.name)
			x += 80
		}
	}
	y += 2 * lineHeight
	top := y
	for _, f := range r.Rows {
		c := f.Figure["C"]
		if c == 0 || f.Unit == "" {
			continue
		}
		y += lineHeight
		text(margin, y, "", f.Name)
		for _, d := range dots {
			if v, ok := f.Figure[d.name]; ok {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="5" fill="%s"/>`+"\n", at(v/c), y-4, d.color)
			}
		}
	}
	for _, factor := range []float64{0.1, 1, 10} {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#cccccc"/>`+"\n", at(factor), top+4, at(factor), y)
		text(at(factor)-8, top, "", fmt.Sprintf("%g", factor))
	}
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="monospace" font-size="11">`+"\n"+
		`<rect width="100%%" height="100%%" fill="white"/>`+"\n", at(most)+margin, y+margin)
	return head + b.String() + "</svg>\n"
}

// at is where a multiple of C's time is.
func at(factor float64) float64 {
	return labels + decade*math.Log10(min(max(factor, least), most)/least)
}
