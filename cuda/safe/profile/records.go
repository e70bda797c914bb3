package profile

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/ianlancetaylor/demangle"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cupti"
)

// read reads the records of a buffer.
func (r *Recording) read(p unsafe.Pointer, n uint64) {
	var a *cupti.CUpti_Activity // the record before, too
	for {
		err := cupti.CuptiActivityGetNextRecord((*uint8)(p), n, &a)
		switch {
		case errors.Is(err, cupti.CUPTI_ERROR_MAX_LIMIT_REACHED): // the end
			return
		case err != nil: // the rest of the buffer cannot be read
			r.lost++
			return
		case !r.o.AllCalls && !r.t.matters(a):
		case !r.room():
			r.lost++
		case !r.t.record(a) && !r.flushed: // later, it is work in progress
			r.lost++
		}
	}
}

// matters tells whether a record is kept without Options.AllCalls.
func (t *Timeline) matters(a *cupti.CUpti_Activity) bool {
	if a.Kind != cupti.CUPTI_ACTIVITY_KIND_DRIVER {
		return true
	}
	return t.function(cupti.CUPTI_CB_DOMAIN_DRIVER_API, (*cupti.CUpti_ActivityAPI)(unsafe.Pointer(a)).Cbid).matters
}

// record adds a record. It returns false for work of which CUPTI does not know the times. Records grow at their end from version to version, so structs of the first version that
// has what is needed are right for all. Times stay CUPTI's until finish.
func (t *Timeline) record(a *cupti.CUpti_Activity) bool {
	at := unsafe.Pointer(a)
	var w Work
	switch a.Kind {
	case cupti.CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, cupti.CUPTI_ACTIVITY_KIND_KERNEL:
		k := (*cupti.CUpti_ActivityKernel9)(at)
		s := t.symbol(k.Name)
		w = Work{Kind: Kernel, Name: s.plain, Symbol: s.mangled, Start: time.Duration(k.Start), End: time.Duration(k.End),
			Device: int(k.DeviceId), Context: k.ContextId, Stream: k.StreamId, Grid: [3]int32{k.GridX, k.GridY, k.GridZ},
			Block: [3]int32{k.BlockX, k.BlockY, k.BlockZ}, Cluster: [3]uint32{k.ClusterX, k.ClusterY, k.ClusterZ},
			Registers: int(k.RegistersPerThread), StaticShared: int(k.StaticSharedMemory), DynamicShared: int(k.DynamicSharedMemory),
			Local: int(k.LocalMemoryPerThread), Graph: k.GraphId, Node: k.GraphNodeId, correlation: k.CorrelationId}
	case cupti.CUPTI_ACTIVITY_KIND_MEMCPY:
		k := (*cupti.CUpti_ActivityMemcpy6)(at)
		w = Work{Kind: Copy, Name: copyName(k.CopyKind), Start: time.Duration(k.Start), End: time.Duration(k.End), Device: int(k.DeviceId),
			Context: k.ContextId, Stream: k.StreamId, Bytes: k.Bytes, Graph: k.GraphId, Node: k.GraphNodeId, correlation: k.CorrelationId}
	case cupti.CUPTI_ACTIVITY_KIND_MEMCPY2:
		k := (*cupti.CUpti_ActivityMemcpyPtoP4)(at)
		w = Work{Kind: Copy, Name: copyName(k.CopyKind), Start: time.Duration(k.Start), End: time.Duration(k.End), Device: int(k.DeviceId),
			Context: k.ContextId, Stream: k.StreamId, Bytes: k.Bytes, Graph: k.GraphId, Node: k.GraphNodeId, correlation: k.CorrelationId}
	case cupti.CUPTI_ACTIVITY_KIND_MEMSET:
		k := (*cupti.CUpti_ActivityMemset4)(at)
		w = Work{Kind: Fill, Name: "fill", Start: time.Duration(k.Start), End: time.Duration(k.End), Device: int(k.DeviceId),
			Context: k.ContextId, Stream: k.StreamId, Bytes: k.Bytes, Graph: k.GraphId, Node: k.GraphNodeId, correlation: k.CorrelationId}
	case cupti.CUPTI_ACTIVITY_KIND_DRIVER, cupti.CUPTI_ACTIVITY_KIND_RUNTIME:
		k := (*cupti.CUpti_ActivityAPI)(at)
		domain := cupti.CUPTI_CB_DOMAIN_DRIVER_API
		if a.Kind == cupti.CUPTI_ACTIVITY_KIND_RUNTIME {
			domain = cupti.CUPTI_CB_DOMAIN_RUNTIME_API
		}
		t.calls.add(Call{Name: t.function(domain, k.Cbid).name, Start: time.Duration(k.Start), End: time.Duration(k.End), Thread: k.ThreadId,
			Status: k.ReturnValue, correlation: k.CorrelationId})
		return true
	default:
		return true
	}
	if w.Start == 0 && w.End == 0 { // for lack of memory on the device, for instance
		return false
	}
	t.work.add(w)
	return true
}

// called is what there is to know about a function that is called.
type called struct {
	name    string
	matters bool
}

// function describes a function, and asks CUPTI but once: a goroutine that waits makes millions of calls a second.
func (t *Timeline) function(domain cupti.CUpti_CallbackDomain, id cupti.CUpti_CallbackId) *called {
	all := &t.functions[domain&1]
	if id > 1<<16 { // nonsense
		return &called{}
	}
	if int(id) >= len(*all) {
		*all = append(*all, make([]*called, int(id)+1-len(*all))...)
	}
	f := (*all)[id]
	if f == nil {
		name := callName(domain, id)
		f = &called{name, matters(name)}
		(*all)[id] = f
	}
	return f
}

// pieces is a list that grows without moving what it has. A slice of a million records takes a second for that, and
// meanwhile CUPTI runs out of buffers.
type pieces[T any] struct {
	full [][]T
	last []T
}

const piece = 4096 // elements

func (p *pieces[T]) len() int { return len(p.full)*piece + len(p.last) }

func (p *pieces[T]) add(v T) {
	if p.last == nil {
		p.last = make([]T, 0, piece)
	}
	if p.last = append(p.last, v); len(p.last) == piece {
		p.full, p.last = append(p.full, p.last), nil
	}
}

// take returns all elements, and keeps none.
func (p *pieces[T]) take() []T {
	all := slices.Concat(append(p.full, p.last)...)
	*p = pieces[T]{}
	return all
}

// symbol is the name at an address of CUPTI's, which may use it for another name after a module is unloaded.
func (t *Timeline) symbol(p *byte) *symbol {
	if p == nil {
		return &symbol{}
	}
	address := uintptr(unsafe.Pointer(p))
	if s := t.symbols[address]; s != nil && sameText(p, s.mangled) {
		return s
	}
	if t.symbols == nil {
		t.symbols = map[uintptr]*symbol{}
	}
	s := &symbol{mangled: ffi.GoString(p)}
	s.plain = plainName(s.mangled)
	t.symbols[address] = s
	return s
}

// plainName is a name of C++ without the parameters, and without the result, which only templates have.
func plainName(mangled string) string {
	name := demangle.Filter(mangled, demangle.NoParams, demangle.NoEnclosingParams)
	depth := 0
	for i := len(name) - 1; i >= 0; i-- {
		switch name[i] {
		case '>', ')', ']':
			depth++
		case '<', '(', '[':
			depth--
		case ' ':
			if depth == 0 && !strings.HasSuffix(name[:i], "operator") {
				return name[i+1:]
			}
		}
	}
	return name
}

func copyName(kind uint8) string {
	names := [...]string{"copy", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"}
	if int(kind) < len(names) {
		return names[kind]
	}
	return names[0]
}
