package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// print writes m for a reader.
func (m *machine) print(w io.Writer) error {
	var b strings.Builder
	for _, l := range append([]library{m.Driver}, m.Libraries...) {
		l.print(&b)
	}
	if len(m.Devices) == 0 {
		fmt.Fprintf(&b, "no devices: %s\n", m.NoDevices)
	}
	for _, d := range m.Devices {
		d.print(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *library) print(b *strings.Builder) {
	if l.NotFound != "" {
		fmt.Fprintf(b, "%-9s not found: %s\n", l.Package, l.NotFound)
		return
	}
	fmt.Fprintf(b, "%-9s %s, %s: %d of the package's %d functions\n", l.Package, l.File, l.version(l.Version), l.Offered, l.Functions)
	for _, misfit := range l.Misfits {
		fmt.Fprintf(b, "%-9s   %s\n", "", misfit)
	}
	for _, s := range l.Missing {
		fmt.Fprintf(b, "%-9s   no %s: it needs %s\n", "", s.Name, l.version(s.Since))
	}
}

// version says which version v is: of CUDA, or of a library that has versions of its own.
func (l *library) version(v string) string {
	switch {
	case v == "":
		return "unknown version"
	case slices.Contains([]string{"driver", "cudart12", "cudart13", "nvrtc", "nvjitlink"}, l.Package):
		return "CUDA " + v
	}
	return "version " + v
}

func (d *device) print(b *strings.Builder) {
	kind := "discrete"
	if d.Integrated {
		kind = "integrated"
	}
	pools := "memory pools"
	if !d.MemoryPools {
		pools = "no memory pools"
	}
	fmt.Fprintf(b, "device %d  %s, compute capability %s, %.1f GiB, %d multiprocessors, %.0f MiB L2, %d copy engines, %s, %s\n",
		d.Ordinal, d.Name, d.Capability, float64(d.Memory)/(1<<30), d.Multiprocessors, float64(d.L2)/(1<<20), d.CopyEngines, kind, pools)
	fmt.Fprintf(b, "%-9s %s at %s\n", "", d.UUID, d.PCI)
}
