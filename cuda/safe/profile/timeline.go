package profile

import (
	"fmt"
	"time"
)

// A Kind is what a device did.
type Kind uint8

// The kinds of work.
const (
	Kernel Kind = iota
	Copy
	Fill
)

func (k Kind) String() string {
	if k > Fill {
		return fmt.Sprintf("Kind(%d)", k)
	}
	return [...]string{"kernel", "copy", "fill"}[k]
}

// Work is one kernel, copy or fill. Times are from the start of the recording.
type Work struct {
	Kind       Kind
	Name       string // of the kernel without parameters, or HtoD, DtoH, PtoP, ...; H is the host, D a device, A an array, P two devices
	Symbol     string // of a kernel, as the compiler mangles it
	Start, End time.Duration
	Device     int
	Context    uint32 // CUPTI's numbers
	Stream     uint32
	Call       int // the index of the call that enqueued it, or -1
	Range      int // the index of the innermost range that enqueued it, or -1

	Bytes uint64 // of a copy or a fill

	Grid, Block   [3]int32 // of a kernel, as all below
	Cluster       [3]uint32
	Registers     int // of a thread
	StaticShared  int // bytes of a block
	DynamicShared int
	Local         int     // bytes of a thread
	Occupancy     float64 // of the warps that a multiprocessor has room for, the part that fits; 0 if it is not known

	Graph uint32 // the executable whose node it is, 0 for none; nodes of one launch have the same Call, too
	Node  uint64

	correlation uint32
}

// A Call is a call of CUDA on the host.
type Call struct {
	Name       string
	Start, End time.Duration
	Thread     uint32 // the system's number
	Status     uint32 // the code that it returned
	Range      int    // the index of the innermost range around it, or -1

	correlation uint32
}

// A Wait is the time in which a goroutine waited for the GPU, by package safe. Waits that end within
// microseconds are left out.
type Wait struct {
	Name       string // such as Stream.Wait
	Start, End time.Duration
	Range      int // the index of the innermost range around it, or -1

	thread uint32
}

// A Span is a range of the program: see [Begin].
type Span struct {
	Name       string
	Start, End time.Duration
	Thread     uint32
	Parent     int // the index of the range around it, or -1
}

// A Timeline is what a [Recording] has recorded. Its slices are sorted by Start.
type Timeline struct {
	Started  time.Time
	Duration time.Duration // from Start to Stop
	Work     []Work
	Calls    []Call
	Waits    []Wait
	Ranges   []Span
	Lost     int // records that are missing: over the limit, or CUPTI had no buffer, or no times of the work

	streams map[streamKey]string // names
	threads map[uint32]string

	// While it is recorded:
	work      pieces[Work]
	calls     pieces[Call]
	waits     pieces[Wait]
	ranges    pieces[Span]
	symbols   map[uintptr]*symbol
	functions [2][]*called // by CUPTI's numbers, those of the runtime first
}

// graphLaunch is a launch of an executable graph on a device, as its nodes show it.
type graphLaunch struct {
	graphKey
	start, end time.Duration
	nodes      int
}

type graphKey struct {
	device             int
	graph, correlation uint32
}

func (l graphLaunch) String() string { return fmt.Sprint("graph ", l.graph) }

// launches finds the launches of graphs, sorted by start. The work is sorted.
func (t *Timeline) launches() (all []graphLaunch) {
	index := map[graphKey]int{}
	for i := range t.Work {
		w := &t.Work[i]
		if w.Graph == 0 {
			continue
		}
		key := graphKey{w.Device, w.Graph, w.correlation}
		at, ok := index[key]
		if !ok {
			at = len(all)
			index[key] = at
			all = append(all, graphLaunch{graphKey: key, start: w.Start})
		}
		l := &all[at]
		l.end = max(l.end, w.End)
		l.nodes++
	}
	return all
}

// streamKey is a stream by CUPTI's numbers.
type streamKey struct{ context, stream uint32 }

// symbol is the name of a kernel.
type symbol struct{ mangled, plain string }
