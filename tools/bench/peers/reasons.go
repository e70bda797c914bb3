package main

import (
	"regexp"
	"slices"
)

// reasons say why one of our ways may be behind the best peer. The first that matches counts. A row
// that loses without one is a fault, or lacks a line here.
var reasons = []struct{ way, rows, why string }{
	{"safe", `^event (record|query)|^stream query`, "The call locks the stream, or counts as a call with the event, so that another goroutine may close either at any time."},
	{"safe", `^launch, |^100 launches`, "A launch locks the stream, checks the kernel and its buffers, and records the stream as a user of each buffer. A Batch does so once for many launches: see bulk and replay."},
	{"bulk", `^100 launches`, "Recording checks and copies the arguments of each launch: see replay."},
	{"safe", `^stream create|^empty graph`, "A Stream and a Graph retain their context, are on the list of what Context.CloseAll closes, and are closed if the program drops them. A Graph also has room for what its nodes will use."},
	{"safe", `alloc and free`, "A Buffer retains its context, is on the list of what Context.CloseAll closes, and is freed if the program drops it. Each call checks that the stream does not capture. Buffers of an Arena need none of this: see bulk."},
	{"safe", `^graph of \d+: (build|set)`, "Add and Set cross into C for each node. AddAll and SetAll do so once for all nodes: see bulk."},
	{"bulk", `^graph of (1|10): (build|set)`, "With few nodes, what AddAll and SetAll do once weighs more than what they save for each node."},
	{"bulk", `^graph of \d+: set all of the executable`, "SetAll retains what each node uses for the executable."},
	{"safe", `^graph of \d+: capture`, "A capture consists of single launches."},
	{"safe", `^graph of \d+: (instantiate|update)`, "The executable retains the objects that its nodes use."},
	{"safe", `^graph of \d+: launch$`, "A launch locks the stream and the executable, and keeps executables from being destroyed."},
	{"safe", `^launch and wait, 0 µs|^copy 4 KiB|^graph of (1|10): launch and wait`, "The launch or copy locks the stream, and the wait locks it again and queries it until it is idle, in a crossing of its own."},
	{"safe", `^launch and wait|and wait$`, "After at most 60 µs a wait stops spinning and polls, every 10 µs at first. It returns some microseconds later than a wait that spins, but uses a fraction of the CPU time."},
	{"safe", `^pipeline`, "A piece is three calls, each of which locks the stream and checks what it uses. A Batch does so once for many pieces: see bulk and replay."},
	{"replay", `^pipeline, 256`, "The pieces of a stream are submitted together, and the other streams wait meanwhile."},
	{"bulk", `^pipeline`, "Recording checks and copies what each piece needs: see replay."},
}

// reason is why a way may be behind in a row, "" if none is known.
func reason(way, row string) string {
	for _, r := range reasons {
		if way == r.way && regexp.MustCompile(r.rows).MatchString(row) {
			return r.why
		}
	}
	return ""
}

// An explanation is a reason, and the losses for which it counts.
type explanation struct {
	why    string
	losses []loss
}

// explained lists losses by their reasons.
func explained(losses []loss) (all []explanation) {
	const unknown = "No reason is known: find it, or write it into tools/bench/peers/reasons.go."
	for _, l := range losses {
		why := l.why
		if why == "" {
			why = unknown
		}
		i := slices.IndexFunc(all, func(e explanation) bool { return e.why == why })
		if i < 0 {
			i, all = len(all), append(all, explanation{why: why})
		}
		all[i].losses = append(all[i].losses, l)
	}
	return all
}

func (l loss) String() string {
	return l.Name + " (" + l.way + "): " + l.amount(l.way) + ", " + l.best + " " + l.amount(l.best)
}
