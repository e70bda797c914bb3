//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
)

// A profile determines the kinds of programs that are generated.
type profile struct {
	name, doc  string
	topics     map[string]int // how often steps of a topic are chosen, beside others
	goroutines int            // at most
	steps      int            // of a goroutine, at most
	devices    int            // at most
	ends       bool           // one program a process, as CUDA may be lost to it
	drops      int            // percentage of objects that are dropped instead of closed
	own        bool           // goroutines have things of their own, whose contents they know
	libraries  bool           // it needs cuBLAS, cuFFT and cuRAND, or their doubles: only if named
	full       bool           // the device has no memory left: on a GPU alone, as others need some
	ticks      int            // of the clock, at most, that a stream waits for
	uncached   bool           // the driver sees each release of memory, so that it finds one that is too early
}

var profiles = []*profile{
	{
		name: "default", doc: "everything without faults", goroutines: 8, steps: 60, devices: 1, drops: 20, own: true, ticks: 3,
		topics: map[string]int{"own": 6, "ownwait": 3, "owngraph": 4, "owncapture": 4, "condition": 4, "stream": 2, "event": 2, "capture": 2, "graph": 1, "exec": 2, "memory": 2, "pitched": 1, "wait": 2, "green": 1, "life": 1, "resource": 2, "ownresource": 4, "ownretain": 1, "whole": 1, "ownwhole": 1},
	},
	{
		name: "own", doc: "goroutines with things of their own alone", goroutines: 8, steps: 60, devices: 1, drops: 20, own: true, ticks: 3,
		topics: map[string]int{"own": 3, "ownwait": 1, "owngraph": 3, "owncapture": 3, "condition": 3, "ownwhole": 1},
	},
	{
		name: "memcheck", doc: "own without captures and conditional nodes, which compute-sanitizer disturbs", uncached: true, goroutines: 8, steps: 60, devices: 1, drops: 20, own: true, ticks: 3,
		topics: map[string]int{"own": 3, "ownwait": 1, "owngraph": 3},
	},
	{
		name: "captures", doc: "captures beside everything that could see them", goroutines: 8, steps: 80, devices: 1, drops: 10, own: true, ticks: 2,
		topics: map[string]int{"own": 3, "ownwait": 1, "owngraph": 6, "owncapture": 6, "condition": 6, "stream": 3, "event": 4, "capture": 6, "wait": 3, "green": 1, "resource": 3, "ownresource": 6, "ownretain": 2, "whole": 1, "ownwhole": 1},
	},
	{
		name: "graphs", doc: "graphs by hand and captured, and their executables", uncached: true, goroutines: 6, steps: 80, devices: 1, drops: 20, own: true, ticks: 2,
		topics: map[string]int{"own": 2, "ownwait": 1, "owngraph": 6, "owncapture": 6, "condition": 6, "stream": 1, "capture": 2, "graph": 6, "exec": 6, "memory": 1, "resource": 2, "ownresource": 6, "ownretain": 2, "whole": 1, "ownwhole": 1, "green": 1},
	},
	{
		name: "memory", doc: "memory of every kind", uncached: true, goroutines: 6, steps: 80, devices: 1, drops: 20, own: true, ticks: 2,
		topics: map[string]int{"own": 8, "ownwait": 3, "owngraph": 1, "owncapture": 1, "condition": 1, "stream": 1, "memory": 8, "pitched": 6, "capture": 1, "green": 1},
	},
	{
		name: "lifetimes", doc: "closing and dropping at any moment", uncached: true, goroutines: 8, steps: 60, devices: 1, drops: 50, own: true, ticks: 3,
		topics: map[string]int{"own": 2, "ownwait": 1, "owngraph": 2, "owncapture": 2, "condition": 2, "stream": 2, "event": 2, "capture": 1, "graph": 1, "exec": 1, "memory": 2, "pitched": 1, "wait": 1, "green": 1, "life": 8, "resource": 3, "ownresource": 4, "ownretain": 1, "whole": 1, "ownwhole": 1},
	},
	{
		name: "waits", doc: "many waits, cancelled ones, streams that are stuck for a while, full queues", goroutines: 8, steps: 30, devices: 1, drops: 10, own: true, ticks: 10,
		topics: map[string]int{"own": 2, "ownwait": 6, "owngraph": 1, "owncapture": 1, "condition": 1, "stream": 1, "event": 1, "wait": 6, "crowd": 2, "whole": 1, "ownwhole": 1, "green": 1},
	},
	{
		name: "devices", doc: "two devices, copies between them, events across", goroutines: 6, steps: 60, devices: 2, drops: 20, own: true, ticks: 2,
		topics: map[string]int{"own": 3, "ownwait": 1, "owngraph": 2, "owncapture": 2, "condition": 2, "stream": 2, "event": 2, "capture": 2, "exec": 1, "memory": 3, "device": 6, "life": 1, "whole": 1, "ownwhole": 1, "green": 1},
	},
	{
		name: "contexts", doc: "contexts of the goroutines' own, with memory of graphs that ends with them", goroutines: 10, steps: 40, devices: 2, drops: 30, own: true, ticks: 2,
		topics: map[string]int{"contexts": 8, "own": 1, "stream": 1, "memory": 2, "graph": 1, "exec": 1, "wait": 1, "green": 1, "life": 2},
	},
	{
		name: "raw", doc: "the program's own raw calls beside ours", goroutines: 6, steps: 60, devices: 1, drops: 20, own: true, ticks: 2,
		topics: map[string]int{"own": 3, "ownwait": 1, "owngraph": 2, "owncapture": 2, "condition": 2, "stream": 1, "event": 1, "memory": 1, "wait": 1, "resource": 3, "ownresource": 4, "ownretain": 1, "raw": 8, "green": 1},
	},
	{
		name: "libraries", doc: "cuBLAS, cuFFT and cuRAND; only if named", libraries: true, goroutines: 8, steps: 60, devices: 1, drops: 20, own: true, ticks: 2,
		topics: map[string]int{"ownlibrary": 8, "library": 4, "own": 3, "ownwait": 1, "owngraph": 2, "owncapture": 5, "stream": 2, "event": 1, "capture": 2, "memory": 1, "wait": 1, "whole": 1, "ownwhole": 1, "green": 1, "life": 1},
	},
	{
		name: "full", doc: "a device without free memory; on a GPU only if named", goroutines: 6, steps: 60, devices: 1, drops: 20, ends: true, full: true, ticks: 2,
		topics: map[string]int{"stream": 3, "event": 2, "capture": 2, "graph": 2, "exec": 2, "memory": 4, "pitched": 2, "wait": 2, "green": 1, "life": 2, "whole": 1},
	},
	{
		name: "fault", doc: "kernels that fault, which ends CUDA for the process", goroutines: 6, steps: 40, devices: 1, drops: 20, ends: true, ticks: 2,
		topics: map[string]int{"stream": 3, "event": 2, "capture": 2, "graph": 1, "exec": 2, "memory": 3, "wait": 4, "life": 1, "fault": 1, "whole": 1, "green": 1},
	},
}

func profileNamed(name string) *profile {
	for _, p := range profiles {
		if p.name == name {
			return p
		}
	}
	return nil
}

// kinds returns the profile's kinds of steps with their weights.
func (p *profile) kinds() (all []weighted, total int) {
	for _, k := range sortedKinds() {
		if w := k.weight * p.topics[k.topic]; w > 0 {
			all = append(all, weighted{k, w})
			total += w
		}
	}
	return all, total
}

// with returns the profile with the steps of another topic.
func (p *profile) with(topic string) *profile {
	q := *p
	q.topics = map[string]int{topic: 1}
	for t, n := range p.topics {
		q.topics[t] = n
	}
	return &q
}

// A kind of step.
type kind struct {
	name   string
	topic  string
	weight int
	run    func(t *task) error
	allow  []error // what it may return beside what every call may
}

var kinds = map[string]*kind{}

// add registers kinds of steps of a topic.
func add(topic string, rows []kind) {
	for _, k := range rows {
		k.topic = topic
		kinds[k.name] = &k
	}
}

func sortedKinds() []*kind {
	var all []*kind
	for _, k := range kinds {
		all = append(all, k)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

func list(w io.Writer) {
	for _, p := range profiles {
		all, _ := p.kinds()
		fmt.Fprintf(w, "%-10s %s (%d kinds of steps)\n", p.name, p.doc, len(all))
	}
	topics := map[string][]string{}
	for _, k := range sortedKinds() {
		topics[k.topic] = append(topics[k.topic], k.name)
	}
	var names []string
	for t := range topics {
		names = append(names, t)
	}
	slices.Sort(names)
	for _, t := range names {
		fmt.Fprintf(w, "\n%s:", t)
		for _, k := range topics[t] {
			fmt.Fprintf(w, " %s", k)
		}
	}
	fmt.Fprintln(w)
}
