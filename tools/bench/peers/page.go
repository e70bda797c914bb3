package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// introduction explains the table of the page.
const introduction = `# Speed beside other bindings

<!-- Written by tools/bench/peers -page: do not edit. -->

The same operations by C, by this module and by other bindings, in turns on one machine: %s
All contestants except PyTorch launch the same kernels; PyTorch launches its own, through its dispatcher. Each is started %s and does each row in several rounds.
A figure is that of the fastest round, or the median of the rounds where a row is about waits or threads.
The columns C and "best" have times, the other columns multiples of C's time, and the rows "more threads" numbers of
threads. A cell is empty if a contestant lacks the operation. Ratios last; times differ from machine to
machine.

| column | meaning |
|---|---|
%s
cudarc, cuda.core, cuda.bindings, CuPy and PyTorch are *tracked*: they count references to what the program uses, or wait for
it by events. C and cudarc-nt are *untracked*: they leave this to the program, and do less.

A way of package safe **loses** where it is slower than the best tracked peer by more than 5 %%, and by more than
an empty cgo call (%.0f ns) and %d ns, in each start. [Why](#where-package-safe-loses) stands below. The spread is by how much the slowest start
exceeds the fastest, of our ways and of the best peers the one that differs most. "More threads" counts the threads that
a process has while its workers wait.

`

// page is docs/peers.md, with a plot in another file.
func (r *results) page(plot string) string {
	var b strings.Builder
	var who strings.Builder
	for _, c := range r.Contestants {
		if c.Absent == "" {
			fmt.Fprintf(&who, "| %s | %s%s |\n", c.Name, escaped(c.Version), meaning[c.Name])
		}
	}
	fmt.Fprintf(&b, introduction, strings.TrimSpace(r.head())+".", times(r.Starts), who.String(), r.Crossing, noise)
	b.WriteString(markdown(r.cells()))
	fmt.Fprintf(&b, "\n![The same times](%s)\n", plot)
	if limited := r.limited(); limited != nil {
		b.WriteString("\n## Beside untracked peers\n\nPackage safe sets itself limits beside those that check and keep nothing. It misses one where it does so in each start.\n\n")
		b.WriteString(markdown(limited))
	}
	b.WriteString("\n## Where package safe loses\n\n")
	all := explained(r.losses())
	for _, e := range all {
		fmt.Fprintf(&b, "- %s\n", e.why)
		for _, l := range e.losses {
			fmt.Fprintf(&b, "  - %s\n", l)
		}
	}
	if len(all) == 0 {
		b.WriteString("In no row.\n")
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n## Not measured, or odd\n\n")
	}
	for _, n := range r.noted() {
		fmt.Fprintf(&b, "- %s\n", escaped(n))
	}
	return b.String()
}

// times says how often.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// writePage writes the page to a file, and the plot beside it.
func (r *results) writePage(file string) error {
	plot := strings.TrimSuffix(file, filepath.Ext(file)) + ".svg"
	if err := os.WriteFile(plot, []byte(r.svg()), 0o666); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(r.page(filepath.Base(plot))), 0o666)
}

// meaning is what a column's version does not say.
var meaning = map[string]string{
	"C":         ", a loop",
	"safe":      ", one call after the other",
	"bulk":      ": a `Batch` recorded each time, `Graph.AddAll`, `Graph.SetAll`, `GraphExec.SetAll`, an `Arena`",
	"replay":    ": a `Batch` recorded once",
	"cudarc":    ", in Rust",
	"cudarc-nt": ", in Rust",
}

func escaped(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
