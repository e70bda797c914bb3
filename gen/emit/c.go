package emit

import (
	"fmt"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// c prints the C side of the calls: the types as far as the calls need them,
// the prototypes, and a typed thunk for each function.
func (e *emitter) c() error {
	e.files["ztypes.h"] = []byte(e.cTypes())
	e.files["zprotos.h"] = []byte(e.cProtos())
	e.files["zcall.c"] = []byte(e.cThunks())
	return nil
}

// cTypes declares every type that the prototypes name, without NVIDIA's
// headers. Records are complete only where they are passed by value.
func (e *emitter) cTypes() string {
	w := cWriter{done: map[string]bool{}, byValue: map[*model.Decl]bool{}}
	fmt.Fprintf(&w.b, "%s\n\n#pragma once\n#include <stddef.h>\n#include <stdint.h>\n\n", e.cFirstLine())
	for _, fn := range e.api.Funcs {
		for _, t := range types(fn) {
			if t.Is(model.Struct) || t.Is(model.Union) {
				w.byValue[t.Decl] = true
			}
		}
	}
	for _, fn := range e.api.Funcs {
		for _, t := range types(fn) {
			w.use(t)
		}
	}
	return w.b.String()
}

func types(fn *model.Func) []*model.Type {
	ts := []*model.Type{fn.Result}
	for _, p := range fn.Params {
		ts = append(ts, p.Type)
	}
	return ts
}

type cWriter struct {
	b       strings.Builder
	done    map[string]bool
	byValue map[*model.Decl]bool
}

// use declares what t names, once.
func (w *cWriter) use(t *model.Type) {
	switch t.Kind {
	case model.Pointer, model.Array:
		w.use(t.Elem)
		return
	case model.Basic:
		if strings.HasPrefix(t.C, "cu") && !w.done[t.C] { // cuuint32_t and cuuint64_t
			w.done[t.C] = true
			fmt.Fprintf(&w.b, "typedef %s_t %s;\n", t.Go, t.C)
		}
		return
	case model.Void:
		return
	}
	if w.done[t.C] {
		return
	}
	w.done[t.C] = true
	d := t.Decl
	tag, tagged := cutTag(t.C)
	switch d.Kind {
	case model.Handle:
		fmt.Fprintf(&w.b, "typedef struct z_%s *%s;\n", t.C, t.C)
	case model.Callback:
		fmt.Fprintf(&w.b, "typedef void (*%s)(void);\n", t.C)
	case model.Scalar:
		w.use(d.Underlying)
		fmt.Fprintf(&w.b, "typedef %s;\n", d.Underlying.CDecl(t.C))
	case model.Enum:
		word, value := "unsigned int", "0"
		if d.Signed {
			word, value = "int", "-1"
		}
		if tagged {
			fmt.Fprintf(&w.b, "enum %s { z_%s = %s };\n", tag, tag, value)
		} else {
			fmt.Fprintf(&w.b, "typedef %s %s;\n", word, t.C)
		}
	default:
		w.record(t.C, tag, tagged, d)
	}
}

func (w *cWriter) record(name, tag string, tagged bool, d *model.Decl) {
	body := ""
	if w.byValue[d] {
		for _, f := range d.Fields {
			w.useMember(f.Type)
		}
		body = " {\n" + w.members(d, "\t") + "}"
	}
	if tagged {
		fmt.Fprintf(&w.b, "%s%s;\n", name, body)
	} else {
		fmt.Fprintf(&w.b, "typedef %s z_%s%s %s;\n", d.Kind, tag, body, name)
	}
	if body != "" {
		fmt.Fprintf(&w.b, "_Static_assert(sizeof(%s) == %d && _Alignof(%s) == %d, \"%s\");\n", name, d.Size, name, d.Align, name)
	}
}

// useMember declares the types inside a record that is passed by value.
func (w *cWriter) useMember(t *model.Type) {
	if t.Kind == model.Named && (t.Is(model.Struct) || t.Is(model.Union)) {
		w.byValue[t.Decl] = true
		if t.Decl.Nested {
			for _, f := range t.Decl.Fields {
				w.useMember(f.Type)
			}
			return
		}
	}
	w.use(t)
}

func (w *cWriter) members(d *model.Decl, indent string) string {
	var b strings.Builder
	for _, f := range d.Fields {
		if f.Type.Kind == model.Named && f.Type.Decl.Nested {
			fmt.Fprintf(&b, "%s%s {\n%s%s} %s;\n", indent, f.Type.Decl.Kind, w.members(f.Type.Decl, indent+"\t"), indent, f.C)
			continue
		}
		fmt.Fprintf(&b, "%s%s;\n", indent, f.Type.CDecl(f.C))
	}
	return b.String()
}

func cutTag(c string) (tag string, tagged bool) {
	if i := strings.IndexByte(c, ' '); i > 0 {
		return c[i+1:], true
	}
	return c, false
}

// cProtos prints for each function a pointer type and the struct that carries
// its arguments. A C compiler can check them against NVIDIA's headers in place
// of ztypes.h.
func (e *emitter) cProtos() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n#pragma once\n\n", e.cFirstLine())
	for _, fn := range e.api.Funcs {
		fmt.Fprintf(&b, "typedef %s;\nstruct args_%s {\n", fn.PointerTo("fn_"+fn.Symbol), fn.Symbol)
		for i, p := range fn.Params {
			fmt.Fprintf(&b, "\t%s;\n", p.Type.CDecl(fmt.Sprint("p", i)))
		}
		if fn.Result.Kind != model.Void {
			fmt.Fprintf(&b, "\t%s;\n", retType(fn).CDecl("ret"))
		}
		b.WriteString("};\n")
	}
	return b.String()
}

// retType is the result without const, so that it can be assigned.
func retType(fn *model.Func) *model.Type {
	t := *fn.Result
	t.Const = false
	return &t
}

func (e *emitter) cThunks() string {
	var thunks, list strings.Builder
	for _, fn := range e.api.Funcs {
		var args []string
		for i := range fn.Params {
			args = append(args, fmt.Sprint("s->p", i))
		}
		assign := "s->ret = "
		if fn.Result.Kind == model.Void {
			assign = ""
		}
		use := fmt.Sprintf("struct args_%s *s = args;\n\t", fn.Symbol)
		if len(args) == 0 && assign == "" {
			use = "(void)args;\n\t"
		}
		fmt.Fprintf(&thunks, "static void t_%s(void *fn, void *args)\n{\n\t%s%s((fn_%s)fn)(%s);\n}\n", fn.Symbol, use, assign, fn.Symbol, strings.Join(args, ", "))
		fmt.Fprintf(&list, "\tt_%s,\n", fn.Symbol)
	}
	return e.render("call.c.tmpl", map[string]any{
		"FirstLine": e.cFirstLine(), "Prefix": e.prefix(), "Thunks": thunks.String(), "List": list.String(), "Count": len(e.api.Funcs),
	})
}

func (e *emitter) cFirstLine() string {
	if e.pkg.Notice != "" {
		return e.firstLine() + "\n\n/*\n" + e.pkg.Notice + "\n*/"
	}
	return e.firstLine()
}
