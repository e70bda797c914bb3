package safe

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// SVG returns a drawing of the graph as an SVG image: a box for each node, below the nodes
// that it depends on. From drivers of CUDA 12.3 on, kernel nodes show the kernel's name.
// For more details use [Graph.DOT]. Source: cuGraphGetNodes, cuGraphGetEdges, cuFuncGetName.
func (g *Graph) SVG() (string, error) {
	const op = "Graph.SVG"
	d := drawing{at: map[driver.CUgraphNode]int{}}
	err := g.do(op, func(c *graphCore) error {
		nodes, err := c.nodes(func(raw *driver.CUgraphNode, n *uint64) error { return driver.CuGraphGetNodes(c.raw, raw, n) })
		if err != nil {
			return err
		}
		from, to, _, err := c.edges()
		if err != nil {
			return err
		}
		for i, n := range nodes {
			d.at[n.raw] = i
			d.labels = append(d.labels, n.label())
		}
		for i := range from {
			d.edges = append(d.edges, [2]int{d.at[from[i]], d.at[to[i]]})
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return d.svg(), nil
}

// label returns the node's type, with the name of a kernel.
func (n Node) label() string {
	text := strings.ToLower(strings.TrimPrefix(n.kind.String(), "CU_GRAPH_NODE_TYPE_"))
	if n.kind != driver.CU_GRAPH_NODE_TYPE_KERNEL {
		return text
	}
	var name *byte
	if p, err := n.kernelParams(); err != nil || driver.CuFuncGetName(&name, p.Function) != nil {
		return text
	}
	return text + " " + ffi.GoString(name)
}

// printed replaces what XML cannot contain: the name of a kernel may be any bytes.
func printed(r rune) rune {
	if !unicode.IsPrint(r) {
		return unicode.ReplacementChar
	}
	return r
}

// A drawing is a graph of labeled boxes in rows.
type drawing struct {
	at     map[driver.CUgraphNode]int
	labels []string
	edges  [][2]int // from one box to another
}

// Sizes of the drawing, in pixels.
const (
	boxHeight = 28
	rowHeight = 64
	gap       = 16
	letter    = 8
)

// rows sorts boxes into rows by the longest path that leads to them, and each row by the
// mean place of the boxes above.
func (d *drawing) rows() [][]int {
	above, below := make([][]int, len(d.labels)), make([][]int, len(d.labels))
	for _, e := range d.edges {
		above[e[1]], below[e[0]] = append(above[e[1]], e[0]), append(below[e[0]], e[1])
	}
	depth, waits := make([]int, len(d.labels)), make([]int, len(d.labels))
	var next []int // boxes whose depth is known; those in a cycle and below one may end anywhere
	for i := range d.labels {
		if waits[i] = len(above[i]); waits[i] == 0 {
			next = append(next, i)
		}
	}
	for ; len(next) > 0; next = next[1:] {
		i := next[0]
		for _, to := range below[i] {
			depth[to] = max(depth[to], depth[i]+1)
			if waits[to]--; waits[to] == 0 {
				next = append(next, to)
			}
		}
	}
	var rows [][]int
	for i := range d.labels {
		for len(rows) <= depth[i] {
			rows = append(rows, nil)
		}
		rows[depth[i]] = append(rows[depth[i]], i)
	}
	place := make([]float64, len(d.labels))
	for _, row := range rows {
		for _, i := range row {
			sum := 0.0
			for _, from := range above[i] {
				sum += place[from]
			}
			if n := len(above[i]); n > 0 {
				place[i] = sum / float64(n)
			}
		}
		slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(place[a], place[b]) })
		for k, i := range row {
			place[i] = float64(k)
		}
	}
	return rows
}

func (d *drawing) svg() string {
	rows := d.rows()
	width := func(i int) int { return letter*len(d.labels[i]) + 2*gap }
	total := 0
	for _, row := range rows {
		w := gap
		for _, i := range row {
			w += width(i) + gap
		}
		total = max(total, w)
	}
	x, y := make([]int, len(d.labels)), make([]int, len(d.labels)) // the middle of each box
	for r, row := range rows {
		w := -gap
		for _, i := range row {
			w += width(i) + gap
		}
		left := (total - w) / 2
		for _, i := range row {
			x[i], y[i] = left+width(i)/2, gap+r*rowHeight+boxHeight/2
			left += width(i) + gap
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"monospace\" font-size=\"13\" text-anchor=\"middle\">\n", total, len(rows)*rowHeight)
	for _, e := range d.edges {
		from, to := y[e[0]]+boxHeight/2, y[e[1]]-boxHeight/2
		fmt.Fprintf(&b, "<path d=\"M%d %d C%d %d %d %d %d %d\" fill=\"none\" stroke=\"gray\"/>\n", x[e[0]], from, x[e[0]], from+gap, x[e[1]], to-gap, x[e[1]], to)
	}
	for i, label := range d.labels {
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"white\" stroke=\"black\"/>", x[i]-width(i)/2, y[i]-boxHeight/2, width(i), boxHeight)
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n", x[i], y[i]+4, html.EscapeString(strings.Map(printed, label)))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
