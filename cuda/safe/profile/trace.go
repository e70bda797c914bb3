package profile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// hostPID is the process of the trace that stands for the host; devices follow.
const hostPID = 1

// firstTrack is the first number of a track that is no thread: above those of threads, and small enough for Perfetto.
const firstTrack = 1 << 23

// WriteTrace writes the timeline as JSON that Perfetto and chrome://tracing open. Each thread has a
// track with its ranges and calls, each stream one with its work; waits outside ranges and launches of graphs have their own. Arrows
// lead from calls to the work that they enqueued. It stops at the first error of w, and returns it.
func (t *Timeline) WriteTrace(w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(b, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"started\":%q,\"lost\":%d},\"traceEvents\":[\n", t.Started.Format(time.RFC3339Nano), t.Lost)
	fmt.Fprintf(b, `{"ph":"M","pid":%d,"name":"process_name","args":{"name":"Go program"}}`, hostPID)
	e := &events{b: b, tracks: newTracks(t.streams)}
	t.traceHost(e)
	arrows := map[uint32]bool{} // one for each call
	each(e, t.Work, func(k *Work) {
		pid, tid := e.tracks.of(e, k)
		e.bar(k.Kind.String(), pid, tid, k.Name, k.Start, k.End, t.args(k))
		if k.Call >= 0 && !arrows[k.correlation] {
			arrows[k.correlation] = true
			c := &t.Calls[k.Call]
			e.add(`{"ph":"s","cat":"enqueue","id":%d,"pid":%d,"tid":%d,"name":"enqueue","ts":%s}`, k.correlation, hostPID, c.Thread, us(c.Start))
			e.add(`{"ph":"f","bp":"e","cat":"enqueue","id":%d,"pid":%d,"tid":%d,"name":"enqueue","ts":%s}`, k.correlation, pid, tid, us(k.Start))
		}
	})
	t.traceGraphs(e)
	b.WriteString("\n]}\n")
	return b.Flush()
}

// traceHost writes what the host did.
func (t *Timeline) traceHost(e *events) {
	each(e, t.Ranges, func(r *Span) { e.bar("range", hostPID, int(r.Thread), r.Name, r.Start, r.End, "") })
	each(e, t.Calls, func(c *Call) {
		e.bar("call", hostPID, int(c.Thread), c.Name, c.Start, c.End, fmt.Sprintf(`"status":%d,"correlation":%d`, c.Status, c.correlation))
	})
	var waits lanes
	each(e, t.Waits, func(w *Wait) {
		tid := firstTrack - 2*mostLanes
		if w.Range >= 0 {
			tid = int(t.Ranges[w.Range].Thread)
		} else {
			tid += waits.place(w.Start, w.End)
		}
		e.bar("wait", hostPID, tid, w.Name, w.Start, w.End, "")
	})
	for i := range waits {
		e.name("thread_name", hostPID, firstTrack-2*mostLanes+i, "waits of goroutines")
	}
	for id, name := range t.threads {
		e.name("thread_name", hostPID, int(id), name)
	}
}

// traceGraphs writes a bar around the nodes of each launch of a graph, on tracks of their own.
func (t *Timeline) traceGraphs(e *events) {
	if e.err != nil {
		return
	}
	devices := map[int]*lanes{}
	each(e, t.launches(), func(l *graphLaunch) {
		pid := hostPID + 1 + l.device
		if devices[l.device] == nil {
			devices[l.device] = new(lanes)
		}
		e.bar("graph", pid, firstTrack-mostLanes+devices[l.device].place(l.start, l.end), l.String(), l.start, l.end,
			fmt.Sprintf(`"correlation":%d,"nodes":%d`, l.correlation, l.nodes))
	})
	for device, all := range devices {
		for i := range *all {
			e.name("thread_name", hostPID+1+device, firstTrack-mostLanes+i, "launches of graphs")
		}
	}
}

func (t *Timeline) args(k *Work) string {
	s := fmt.Sprintf(`"correlation":%d`, k.correlation)
	switch k.Kind {
	case Kernel:
		s += fmt.Sprintf(`,"grid":"%d,%d,%d","block":"%d,%d,%d","registers":%d,"shared static":%d,"shared dynamic":%d`,
			k.Grid[0], k.Grid[1], k.Grid[2], k.Block[0], k.Block[1], k.Block[2], k.Registers, k.StaticShared, k.DynamicShared)
		if k.Cluster[0]*k.Cluster[1]*k.Cluster[2] > 1 {
			s += fmt.Sprintf(`,"cluster":"%d,%d,%d"`, k.Cluster[0], k.Cluster[1], k.Cluster[2])
		}
		if k.Local > 0 {
			s += fmt.Sprintf(`,"local":%d`, k.Local)
		}
		if k.Occupancy > 0 {
			s += fmt.Sprintf(`,"occupancy %%":%.1f`, 100*k.Occupancy)
		}
		if k.Symbol != k.Name {
			s += `,"symbol":` + quote(k.Symbol)
		}
	case Copy, Fill:
		s += fmt.Sprintf(`,"bytes":%d,"GB/s":%.4g`, k.Bytes, rate(k.Bytes, k.End-k.Start))
	}
	if k.Graph != 0 {
		s += fmt.Sprintf(`,"graph":%d,"node":%d`, k.Graph, k.Node)
	}
	if k.Range >= 0 {
		s += `,"range":` + quote(t.Ranges[k.Range].Name)
	}
	return s
}

// events writes the events of a trace, until an error.
type events struct {
	b      *bufio.Writer
	tracks *tracks
	err    error
}

func (e *events) add(format string, args ...any) {
	e.b.WriteString(",\n")
	_, e.err = fmt.Fprintf(e.b, format, args...) // b returns an error again and again
}

// each calls f for all, until an error.
func each[T any](e *events, all []T, f func(*T)) {
	for i := range all {
		if e.err != nil {
			return
		}
		f(&all[i])
	}
}

func (e *events) bar(category string, pid, tid int, name string, start, end time.Duration, args string) {
	e.add(`{"ph":"X","cat":%q,"pid":%d,"tid":%d,"name":%s,"ts":%s,"dur":%s,"args":{%s}}`, category, pid, tid, quote(name), us(start), us(end-start), args)
}

func (e *events) name(what string, pid, tid int, name string) {
	e.add(`{"ph":"M","pid":%d,"tid":%d,"name":%q,"args":{"name":%s}}`, pid, tid, what, quote(name))
}

func rate(bytes uint64, d time.Duration) float64 { return float64(bytes) / float64(max(d, 1)) }

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// us writes a time as microseconds.
func us(d time.Duration) string { return strconv.FormatFloat(float64(d)/1000, 'f', 3, 64) }

// mostLanes is how many bars can be beside each other; further ones are drawn over others.
const mostLanes = 1024

// lanes are tracks whose bars must not overlap: when the last bar of each ends.
type lanes []time.Duration

// place returns the first lane that is free.
func (l *lanes) place(start, end time.Duration) int {
	i := slices.IndexFunc(*l, func(last time.Duration) bool { return last <= start })
	if i < 0 && len(*l) < mostLanes {
		i = len(*l)
		*l = append(*l, 0)
	}
	i = max(i, 0)
	(*l)[i] = end
	return i
}

// tracks are those of streams. The work of a stream may overlap, as the nodes of a graph: then it takes several.
type tracks struct {
	names  map[streamKey]string
	device map[int]bool
	lanes  map[trackKey]*lanes
	ids    map[trackKey][]int // of the lanes
	last   int
}

type trackKey struct {
	device int
	stream streamKey
}

func newTracks(names map[streamKey]string) *tracks {
	return &tracks{names, map[int]bool{}, map[trackKey]*lanes{}, map[trackKey][]int{}, firstTrack}
}

// of is the track of a piece of work, which it names first if it is new.
func (a *tracks) of(e *events, w *Work) (pid, tid int) {
	pid = hostPID + 1 + w.Device
	if !a.device[w.Device] {
		a.device[w.Device] = true
		e.add(`{"ph":"M","pid":%d,"name":"process_name","args":{"name":"GPU %d"}}`, pid, w.Device)
	}
	key := trackKey{w.Device, streamKey{w.Context, w.Stream}}
	if a.lanes[key] == nil {
		a.lanes[key] = new(lanes)
	}
	lane := a.lanes[key].place(w.Start, w.End)
	for len(a.ids[key]) <= lane {
		a.last++
		a.ids[key] = append(a.ids[key], a.last)
		e.name("thread_name", pid, a.last, a.name(key, len(a.ids[key])-1))
		e.add(`{"ph":"M","pid":%d,"tid":%d,"name":"thread_sort_index","args":{"sort_index":%d}}`, pid, a.last, a.last-firstTrack)
	}
	return pid, a.ids[key][lane]
}

func (a *tracks) name(key trackKey, lane int) string {
	name := a.names[key.stream]
	if name == "" {
		name = fmt.Sprintf("stream %d", key.stream.stream)
	} else {
		name = fmt.Sprintf("%s (stream %d)", name, key.stream.stream)
	}
	if lane > 0 {
		name += fmt.Sprintf(" +%d", lane)
	}
	return name
}
