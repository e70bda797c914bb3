package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// A plot has a panel for each column that is drawn, with a bar for each line. The
// unit of all lengths is a pixel.
const (
	charWidth  = 6.6 // of the font, about
	lineHeight = 18
	barHeight  = 12
	barRoom    = 180 // for the longest bar of a panel
	valueRoom  = 60  // for the number after it
	margin     = 16
)

// colors are those of the ways.
var colors = []string{"#4c566a", "#88a0bd", "#2a7f62", "#7cba9c", "#c98a2b", "#a45a9a", "#b5483f"}

// svg draws a group.
func (p *grouped) svg(h *header) []byte {
	d := &drawing{grouped: p}
	for _, l := range p.Lines {
		if !slices.Contains(d.ways, l.Way) {
			d.ways = append(d.ways, l.Way)
		}
		d.labels = max(d.labels, charWidth*float64(max(utf8.RuneCountInString(l.Way), utf8.RuneCountInString(l.Case))))
	}
	d.y = margin + lineHeight
	d.text(margin, d.y, `font-weight="bold" font-size="15"`, p.Name)
	d.y += lineHeight
	d.text(margin, d.y, `fill="#666666"`, fmt.Sprintf("%s, %s, %d CPUs, %s, %s; targets are red", h.GPU, h.version(), h.CPUs, h.Go, h.Date))
	d.y += 2 * lineHeight
	for i, column := range p.plot {
		d.text(d.left(i), d.y, `font-weight="bold"`, column)
	}
	previous := ""
	for _, l := range p.Lines {
		if l.Case != previous {
			d.y += lineHeight + lineHeight/3
			d.text(margin, d.y, `font-weight="bold"`, l.Case)
			previous = l.Case
		}
		d.y += lineHeight
		d.text(margin, d.y, "", l.Way)
		for i, column := range p.plot {
			d.bar(i, column, l)
		}
	}
	width := d.left(len(p.plot))
	height := d.y + margin
	var all bytes.Buffer
	fmt.Fprintf(&all, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="monospace" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&all, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	all.Write(d.body.Bytes())
	all.WriteString("</svg>\n")
	return all.Bytes()
}

type drawing struct {
	*grouped
	body   bytes.Buffer
	ways   []string
	labels float64 // their width
	y      int     // of the base of the text
}

// left is where a panel begins.
func (d *drawing) left(panel int) float64 {
	return 2*margin + d.labels + float64(panel)*(barRoom+valueRoom)
}

func (d *drawing) text(x float64, y int, how, text string) {
	if how != "" {
		how = " " + how
	}
	fmt.Fprintf(&d.body, `<text x="%.1f" y="%d"%s>%s</text>`+"\n", x, y, how, html.EscapeString(text))
}

// bar draws a value, and its limit as a line across.
func (d *drawing) bar(panel int, column string, l *line) {
	v, ok := l.Values[column]
	if !ok {
		return
	}
	most := 0.0
	for _, other := range d.Lines {
		most = max(most, other.Values[column], other.limit(column))
	}
	scale, top := barRoom/max(most, 1e-9), d.y-barHeight+2
	fmt.Fprintf(&d.body, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
		d.left(panel), top, scale*max(v, 0), barHeight, colors[slices.Index(d.ways, l.Way)%len(colors)])
	end := max(v, 0)
	if limit := l.limit(column); limit > 0 {
		x := d.left(panel) + scale*limit
		fmt.Fprintf(&d.body, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d00000" stroke-width="2"/>`+"\n", x, top-2, x, top+barHeight+2)
		end = max(end, limit)
	}
	d.text(d.left(panel)+scale*end+4, d.y, "", l.value(column))
}

// writePlots draws the groups that were measured, a file each.
func (r *report) writePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, p := range r.Groups {
		if p.Error != "" {
			continue
		}
		file := filepath.Join(dir, strings.ReplaceAll(p.Name, " ", "-")+".svg")
		if err := os.WriteFile(file, p.svg(&r.Header), 0o666); err != nil {
			return err
		}
	}
	return nil
}
