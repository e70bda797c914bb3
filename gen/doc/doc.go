// Package doc writes the doc comments of a model: our own text, and what the
// generator knows of each declaration.
package doc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// Fill writes the doc comments of everything a declares.
func Fill(a *model.API) error {
	w := newWriter(a)
	for _, f := range a.Funcs {
		f.Doc = w.function(f)
	}
	for _, al := range a.Aliases {
		if al.Func {
			al.Doc = w.plainName(al)
		} else {
			al.Doc = wrap(fmt.Sprintf("%s is another name of [%s].", al.Go, al.GoRef))
		}
	}
	for _, d := range a.Decls {
		d.Doc = w.decl(d)
		for _, f := range d.Fields {
			f.Doc = nil
		}
	}
	w.status()
	return nil
}

// writer knows what the links of one package can lead to.
type writer struct {
	api   *model.API
	known map[string]bool // Go names
}

func newWriter(a *model.API) *writer {
	w := &writer{api: a, known: map[string]bool{}}
	for _, f := range a.Funcs {
		w.known[f.Go] = true
	}
	for _, al := range a.Aliases {
		w.known[al.Go] = true
	}
	for _, d := range a.Decls {
		w.known[d.Go] = true
		for _, e := range d.Enumerators {
			w.known[e.Go] = true
		}
	}
	for _, c := range a.Consts {
		w.known[c.Go] = true
	}
	return w
}

// function is the comment of a function: what it calls, what that returns,
// where it comes from.
func (w *writer) function(f *model.Func) []string {
	var doc paragraphs
	doc.add(fmt.Sprintf("%s calls %s.", f.Go, f.Symbol))
	doc.add("\t" + f.Prototype())
	if base, _, thread := model.Base(f.Symbol); thread != "" {
		doc.add(fmt.Sprintf("It is the variant of [%s] for which the stream 0 means the calling thread's own default stream, [%s], instead of the legacy one.",
			w.variantOf(f, base), w.perThread()))
	}
	for _, cb := range f.Callbacks {
		doc.add(w.callback(f, cb))
	}
	r := references(f.Comment)
	codes := w.links(slices.DeleteFunc(r.returns, func(s string) bool { return s == "CUDA_SUCCESS" || s == "cudaSuccess" }))
	if len(codes) > 0 {
		doc.add("Returns nil, " + strings.Join(codes, ", ") + ", or the error of earlier work.")
	}
	if see := w.links(slices.DeleteFunc(r.see, func(s string) bool { return model.GoName(s) == f.Go })); len(see) > 0 {
		doc.add("See also " + strings.Join(see, ", ") + ".")
	}
	doc.add(w.origin(f))
	if f.Deprecated {
		doc.add("Deprecated: NVIDIA marks it as deprecated in CUDA " + w.api.Version + ".")
	}
	return doc.lines
}

// variantOf is the function that a per-thread variant varies.
func (w *writer) variantOf(f *model.Func, base string) string {
	same := strings.TrimSuffix(strings.TrimSuffix(f.Symbol, "_ptsz"), "_ptds")
	for _, g := range w.api.Funcs {
		if g.Symbol == same {
			return g.Go
		}
	}
	return model.GoName(base)
}

func (w *writer) perThread() string {
	if w.api.Name == "driver" {
		return "CU_STREAM_PER_THREAD"
	}
	return "CudaStreamPerThread"
}

// callback says what may be passed as a callback: cgo was promised that no
// call runs Go code on its own thread.
func (w *writer) callback(f *model.Func, cb *model.Decl) string {
	if cb.GoAllowed {
		return fmt.Sprintf("The callback is the address of a C function. CUDA runs it on %s, so it may also be a Go function exported to C; it must call no CUDA function. "+
			"What it is handed is passed on as a number: pass a [runtime/cgo.Handle], not a pointer to Go memory.", cb.Thread)
	}
	return fmt.Sprintf("The callback is the address of a C function, or 0. CUDA runs it on %s: it must not be a Go function exported to C, and must not call one, or the process dies.", cb.Thread)
}

// origin is where a function comes from: version, chapter, NVIDIA's page.
func (w *writer) origin(f *model.Func) string {
	s := "Since " + model.SinceText(f.Since) + ". "
	if f.Since == "" {
		s = ""
	}
	return s + "NVIDIA describes it under " + w.page(f.Group) + "."
}

func (w *writer) page(group string) string {
	manual := "cuda-driver-api"
	if w.api.Name == "runtime" {
		manual = "cuda-runtime-api"
	}
	return "https://docs.nvidia.com/cuda/" + manual + "/group__" + strings.ReplaceAll(group, "_", "__") + ".html"
}

// plainName is the comment of a plain name.
func (w *writer) plainName(al *model.Alias) []string {
	var doc paragraphs
	doc.add(fmt.Sprintf("%s is [%s]: what %s maps the name %s to.", al.Go, al.GoRef, w.api.Header, al.C))
	if al.Newer != "" {
		doc.lines = nil
		doc.add(fmt.Sprintf("%s is [%s], and stays that. The header of CUDA %s maps the name %s to %s, which is [%s] here.",
			al.Go, al.GoRef, w.api.Version, al.C, al.Newer, model.GoName(al.Newer)))
	}
	for _, f := range w.api.Funcs {
		if f.Symbol == al.Target && f.Deprecated {
			doc.add("Deprecated: NVIDIA marks it as deprecated in CUDA " + w.api.Version + ".")
		}
	}
	return doc.lines
}

func (w *writer) decl(d *model.Decl) []string {
	var doc paragraphs
	switch d.Kind {
	case model.Callback:
		doc.add(fmt.Sprintf("%s is the address of a C function that CUDA calls, or 0.", d.Go))
		doc.add("\t" + d.Prototype())
		may := "It must not be a Go function exported to C, and must not call one."
		if d.GoAllowed {
			may = "It may be a Go function exported to C."
		}
		doc.add(fmt.Sprintf("CUDA calls it on %s. %s", d.Thread, may))
	case model.Handle:
		doc.add(fmt.Sprintf("%s is a handle of CUDA's, %s in C; 0 is none.", d.Go, d.C))
	case model.Scalar:
		doc.add(fmt.Sprintf("%s is %s in C, a number of %d bytes.", d.Go, d.C, d.Size))
	case model.Enum:
		doc.add(fmt.Sprintf("%s is the enumeration %s.", d.Go, d.C))
	case model.Union:
		doc.add(fmt.Sprintf("%s is a union, %s, of %d bytes: its members overlap, and a method gives the address of each.", d.Go, w.cName(d), d.Size))
	case model.Struct:
		doc.add(fmt.Sprintf("%s is %s.", d.Go, w.cName(d)))
	}
	if d.Align > 8 {
		doc.add(fmt.Sprintf("C wants it at a multiple of %d bytes, which Go does not promise: allocate it with [New%s].", d.Align, d.Go))
	}
	return doc.lines
}

func (w *writer) cName(d *model.Decl) string {
	if d.Nested {
		return "part of " + d.Go[:strings.LastIndexByte(d.Go, '_')]
	}
	return d.C + " in C"
}

// links turns C names into links where they lead somewhere. What the headers
// name and nowhere declare is left out.
func (w *writer) links(names []string) []string {
	var out []string
	for _, n := range names {
		if g := model.GoName(n); w.known[g] {
			out = append(out, "["+g+"]")
		}
	}
	return out
}

// paragraphs are the lines of a comment.
type paragraphs struct{ lines []string }

func (p *paragraphs) add(text string) {
	if len(p.lines) > 0 {
		p.lines = append(p.lines, "")
	}
	p.lines = append(p.lines, wrap(text)...)
}

// width is where comments wrap.
const width = 97

// wrap breaks text into lines. A line that starts with a tab is code and stays.
func wrap(text string) []string {
	if strings.HasPrefix(text, "\t") {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
