package safe

import (
	"fmt"
	"reflect"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// The String methods call no driver and take no locks, so that objects can be printed at any
// time: closed, in a callback, and by a debugger.

// neverOpened is the text of a nil pointer and of a zero value.
func neverOpened(kind string) string { return kind + " (never opened)" }

// closedText ends the text of an object: it tells whether the object is closed.
func closedText(closed bool) string {
	if closed {
		return " (closed)"
	}
	return ""
}

// handleText is the text of an object with a handle.
func handleText[H ~uintptr | ~uint64](kind string, h H, d Device, closed bool) string {
	return fmt.Sprintf("%s %#x on %v%s", kind, uint64(h), d, closedText(closed))
}

// generic is the name of a type with its element type.
func generic[T any](kind string) string {
	return fmt.Sprintf("%s[%v]", kind, reflect.TypeFor[T]())
}

// place says where a block of memory is.
func (b *block) place() string {
	switch {
	case b.host == nil:
		return "on " + b.ctx.device.String()
	case b.managed():
		return "in managed memory"
	}
	return "on the host"
}

// String describes the context for messages.
func (x *Context) String() string {
	if x == nil || x.core == nil {
		return neverOpened("Context")
	}
	return handleText("Context", x.core.raw, x.core.device, x.closed())
}

// String describes the stream for messages.
func (s *Stream) String() string {
	if s == nil || s.core == nil {
		return neverOpened("Stream")
	}
	return s.core.text()
}

func (s *streamCore) text() string { return handleText("Stream", s.raw, s.ctx.device, s.Closed()) }

// String describes the scope for messages.
func (c *Scope) String() string {
	if c.none() {
		return neverOpened("Scope")
	}
	return "Scope of " + c.stream.String() + closedText(c.over.Load())
}

// String describes the capture for messages.
func (c *Capture) String() string {
	if c == nil || c.c == nil {
		return neverOpened("Capture")
	}
	return "Capture of " + c.c.origin.text() + closedText(c.c.ended.Load())
}

// String describes the event for messages.
func (e *Event) String() string {
	if e == nil || e.core == nil {
		return neverOpened("Event")
	}
	return handleText("Event", e.core.raw, e.core.ctx.device, e.core.Closed())
}

// String tells whether the work is pending, done or failed, and why.
func (f *Future[T]) String() string {
	kind := generic[T]("Future")
	if f.none() {
		return neverOpened(kind)
	}
	select {
	case <-f.done:
		if f.err != nil {
			return kind + ": failed: " + f.err.Error()
		}
		return kind + ": done"
	default:
		return kind + ": pending"
	}
}

// String describes the buffer for messages.
func (b *Buffer[T]) String() string {
	kind := generic[T]("Buffer")
	if b == nil || b.memory == nil {
		return neverOpened(kind)
	}
	return fmt.Sprintf("%s: %d values %s%s", kind, b.n, b.memory.place(), closedText(b.memory.Closed()))
}

// String describes the arena for messages.
func (a *Arena) String() string {
	if a.none() {
		return neverOpened("Arena")
	}
	return "Arena of " + a.stream.String() + closedText(a.closed.Load())
}

// String describes the batch for messages.
func (b *Batch) String() string {
	if b.none() {
		return neverOpened("Batch")
	}
	return fmt.Sprintf("Batch: %d operations on %v", b.Len(), b.ctx.device)
}

// String describes the pinned memory for messages.
func (h *Pinned[T]) String() string {
	kind := generic[T]("Pinned")
	if h == nil || h.memory == nil {
		return neverOpened(kind)
	}
	return fmt.Sprintf("%s: %d values on the host%s", kind, h.n, closedText(h.memory.Closed()))
}

// String describes the pitched memory for messages.
func (b *Pitched[T]) String() string {
	kind := generic[T]("Pitched")
	switch {
	case b == nil || b.memory == nil && b.data == nil:
		return neverOpened(kind)
	case b.memory == nil:
		return fmt.Sprintf("%s: %v values in a Go slice", kind, b.extent)
	case b.kind == driver.CU_MEMORYTYPE_HOST:
		return fmt.Sprintf("%s: %v values on the host%s", kind, b.extent, closedText(b.memory.Closed()))
	}
	return fmt.Sprintf("%s: %v values %s%s", kind, b.extent, b.memory.place(), closedText(b.memory.Closed()))
}

// String describes the array for messages.
func (a *Array[T]) String() string {
	kind := generic[T]("Array")
	if a == nil || a.memory == nil {
		return neverOpened(kind)
	}
	return fmt.Sprintf("%s: %v values on %v%s", kind, a.extent, a.memory.ctx.device, closedText(a.memory.Closed()))
}

// String describes the resource for messages.
func (r *Resource) String() string {
	if r == nil || r.memory == nil {
		return neverOpened("Resource")
	}
	return "Resource on " + r.memory.ctx.device.String() + closedText(r.memory.Closed())
}

// String describes the texture for messages.
func (t *Texture) String() string {
	if t == nil || t.memory == nil {
		return neverOpened("Texture")
	}
	return handleText("Texture", t.raw, t.memory.ctx.device, t.memory.Closed())
}

// String describes the surface for messages.
func (s *Surface) String() string {
	if s == nil || s.memory == nil {
		return neverOpened("Surface")
	}
	return handleText("Surface", s.raw, s.memory.ctx.device, s.memory.Closed())
}

// String describes the pool for messages.
func (p *Pool) String() string {
	if p == nil || p.core == nil {
		return neverOpened("Pool")
	}
	return handleText("Pool", p.core.raw, p.core.ctx.device, p.core.Closed())
}

// String describes the address range for messages.
func (r *AddressRange) String() string {
	if r == nil || r.core == nil {
		return neverOpened("AddressRange")
	}
	return fmt.Sprintf("AddressRange: %d bytes at %#x for %v%s", r.core.size, uint64(r.core.address), r.core.ctx.device, closedText(r.core.Closed()))
}

// String describes the physical memory for messages.
func (p *PhysicalMemory) String() string {
	if p == nil || p.core == nil {
		return neverOpened("PhysicalMemory")
	}
	return fmt.Sprintf("PhysicalMemory: %d bytes on %v%s", p.core.size, p.core.location, closedText(p.core.Closed()))
}

// String describes the module for messages.
func (m *Module) String() string {
	if m == nil || m.core == nil {
		return neverOpened("Module")
	}
	return handleText("Module", m.core.module, m.core.ctx.device, m.core.Closed())
}

// String describes the kernel for messages.
func (k *Kernel) String() string {
	if k == nil || k.module == nil {
		return neverOpened("Kernel")
	}
	return fmt.Sprintf("Kernel %s on %v%s", k.name, k.module.core.ctx.device, closedText(k.module.core.Closed()))
}

// String describes the linker for messages.
func (l *Linker) String() string {
	if l == nil || l.core == nil {
		return neverOpened("Linker")
	}
	return handleText("Linker", l.core.raw, l.core.ctx.device, l.core.Closed())
}

// String describes the memory for messages.
func (m *ExternalMemory) String() string {
	if m == nil || m.memory == nil {
		return neverOpened("ExternalMemory")
	}
	return handleText("ExternalMemory", *m.raw, m.memory.ctx.device, m.memory.Closed())
}

// String describes the semaphore for messages.
func (e *ExternalSemaphore) String() string {
	if e == nil || e.memory == nil {
		return neverOpened("ExternalSemaphore")
	}
	return handleText("ExternalSemaphore", *e.raw, e.memory.ctx.device, e.memory.Closed())
}

// String describes the argument for messages: its size, or the memory it points to.
func (a Arg) String() string {
	switch a.raw.Kind() {
	case rt.Near, rt.Far:
		if a.raw.Size() == 0 {
			return neverOpened("Arg")
		}
		return fmt.Sprintf("Arg: %d bytes", a.raw.Size())
	case rt.NearOfBlock:
		return fmt.Sprintf("Arg: memory at %#x%s", a.raw.A, closedText(a.block().Closed()))
	case argUnfit:
		return fmt.Sprintf("Arg (invalid: %s)", *(*string)(a.raw.Pointer))
	}
	return "Arg (invalid: no memory)"
}

// String describes the value for messages.
func (e Element[T]) String() string {
	kind := generic[T]("Element")
	switch {
	case e.err != nil:
		return kind + " (invalid)"
	case e.memory == nil:
		return neverOpened(kind)
	}
	return fmt.Sprintf("%s at %#x%s", kind, uint64(e.address), closedText(e.memory.Closed()))
}

// String describes the operation for messages.
func (o MemOp) String() string {
	switch {
	case o.err != nil:
		return "MemOp (invalid)"
	case o.memory == nil:
		return neverOpened("MemOp")
	}
	return fmt.Sprintf("MemOp: %v at %#x, value %d", o.kind, uint64(o.address), o.value)
}

// String describes the copy for messages.
func (c CopyOp) String() string {
	switch {
	case c.err != nil:
		return "CopyOp (invalid)"
	case c.dst.memory == nil || c.src.memory == nil:
		return neverOpened("CopyOp")
	}
	return fmt.Sprintf("CopyOp: %d bytes", c.src.size)
}

// String describes the operation for messages.
func (o PrefetchOp) String() string {
	if o.of.memory == nil {
		return neverOpened("PrefetchOp")
	}
	return fmt.Sprintf("PrefetchOp: %d bytes at %#x", o.of.size, uint64(o.of.at))
}

// String describes the graph for messages.
func (g *Graph) String() string {
	if g == nil || g.core == nil {
		return neverOpened("Graph")
	}
	return handleText("Graph", g.core.raw, g.core.ctx.device, g.core.top().Closed())
}

// String describes the executable for messages.
func (e *GraphExec) String() string {
	if e == nil || e.core == nil {
		return neverOpened("GraphExec")
	}
	return handleText("GraphExec", e.core.raw, e.core.ctx.device, e.core.Closed())
}

// String names the node by its type and its handle.
func (n Node) String() string {
	if n == (Node{}) {
		return neverOpened("Node")
	}
	return fmt.Sprintf("%v %#x", n.kind, uintptr(n.raw))
}

// String names the type of the nodes.
func (w NodeParams) String() string {
	if w.other == nil && !w.kernel.made {
		return neverOpened("NodeParams")
	}
	return fmt.Sprint("NodeParams: ", w.kind())
}

// String describes the condition for messages.
func (c Condition) String() string {
	if c.of == nil {
		return neverOpened("Condition")
	}
	return fmt.Sprintf("Condition %#x", uint64(c.raw))
}

// String describes the green context for messages.
func (g *GreenContext) String() string {
	if g == nil || g.core == nil {
		return neverOpened("GreenContext")
	}
	return handleText("GreenContext", g.core.raw, g.core.ctx.device, g.core.Closed())
}
