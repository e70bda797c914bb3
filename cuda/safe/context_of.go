package safe

// The Context methods return a Context that all objects made in the same one share. It is
// not the one that the program has opened, which the garbage collector must be able to
// find dropped: it is usable as long as that is open, or any object made in it.

// Context returns the context of the stream, or nil if s is nil. It is usable as long as
// the stream is open, even if the [Context] that the stream was made in has been closed.
// Its own Close does nothing. Compare contexts by [Context.Raw].
func (s *Stream) Context() *Context {
	if s == nil || s.core == nil {
		return nil
	}
	return s.core.ctx.view
}

// Context returns the context of the event, as [Stream.Context] does.
func (e *Event) Context() *Context {
	if e == nil || e.core == nil {
		return nil
	}
	return e.core.ctx.view
}

// Context returns the context of the module, as [Stream.Context] does.
func (m *Module) Context() *Context {
	if m == nil || m.core == nil {
		return nil
	}
	return m.core.ctx.view
}

// Context returns the context of the graph, as [Stream.Context] does.
func (g *Graph) Context() *Context {
	if g == nil || g.core == nil {
		return nil
	}
	return g.core.ctx.view
}

// Context returns the context of the executable, as [Stream.Context] does.
func (e *GraphExec) Context() *Context {
	if e == nil || e.core == nil {
		return nil
	}
	return e.core.ctx.view
}

// Context returns the context of the green context, as [Stream.Context] does.
func (g *GreenContext) Context() *Context {
	if g == nil || g.core == nil {
		return nil
	}
	return g.core.ctx.view
}

// Context returns the context of the kernel's module, as [Stream.Context] does.
func (k *Kernel) Context() *Context {
	if k == nil {
		return nil
	}
	return k.module.Context()
}

// Context returns the context of the buffer, as [Stream.Context] does.
func (b *Buffer[T]) Context() *Context {
	if b == nil {
		return nil
	}
	return b.memory.context()
}

// Context returns the context of the pinned memory, as [Stream.Context] does.
func (h *Pinned[T]) Context() *Context {
	if h == nil {
		return nil
	}
	return h.memory.context()
}

func (m *memory) context() *Context {
	if m == nil {
		return nil
	}
	return m.ctx.view
}
