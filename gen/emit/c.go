package emit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// c prints the C side of the calls: the types as far as the calls need them,
// the prototypes, and the thunks that call the functions.
func (e *emitter) c() error {
	return errors.Join(
		e.add("ztypes.h", []byte(e.cTypes())),
		e.add("zprotos.h", []byte(e.cProtos())),
		e.add("zcall.c", []byte(e.cThunks())),
	)
}

// cTypes declares every type that the prototypes name, without NVIDIA's
// headers. Records are complete only where they are passed by value.
func (e *emitter) cTypes() string {
	w := cWriter{named: map[string]bool{}, complete: map[string]bool{}, apart: e.api.Row.Package == ""}
	fmt.Fprintf(&w.b, "%s\n\n#pragma once\n#include <stddef.h>\n#include <stdint.h>\n\n", e.firstLine())
	for _, fn := range e.api.Funcs {
		for _, t := range types(fn) {
			w.value(t)
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
	b               strings.Builder
	named, complete map[string]bool
	apart           bool // no type may have a name that the headers have that the calls include
}

// name declares what t names, once; of a record no more than that it is one.
func (w *cWriter) name(t *model.Type) {
	switch t.Kind {
	case model.Pointer, model.Array:
		if t.C != "" && !w.named[t.C] {
			w.named[t.C] = true
			fmt.Fprintf(&w.b, "typedef %s;\n", (&model.Type{Kind: model.Pointer, Elem: t.Elem}).CDecl(t.C))
		}
		w.name(t.Elem)
		return
	case model.Basic:
		if c := otherNumbers[t.C]; c != "" && !w.named[t.C] {
			w.named[t.C] = true
			fmt.Fprintf(&w.b, "typedef %s %s;\n", c, t.C)
		}
		return
	case model.Void:
		if t.C != "" && !w.named[t.C] {
			w.named[t.C] = true
			if _, tagged := cutTag(t.C); tagged {
				fmt.Fprintf(&w.b, "%s;\n", t.C)
			} else {
				fmt.Fprintf(&w.b, "typedef struct z_%s %s;\n", t.C, t.C)
			}
		}
		return
	}
	if w.named[t.C] {
		return
	}
	w.named[t.C] = true
	d := t.Decl
	tag, tagged := cutTag(t.C)
	if d.Package == "" && (w.apart || d.Foreign && !tagged) { // what the calls include may have it, too
		fmt.Fprintf(&w.b, "#define %s z_%s_\n", tag, tag)
	}
	switch d.Kind {
	case model.Handle:
		fmt.Fprintf(&w.b, "typedef struct z_%s *%s;\n", t.C, t.C)
	case model.Callback:
		if d.Inline {
			for _, p := range d.Params {
				w.name(p.Type)
			}
			w.name(d.Result)
			break
		}
		fmt.Fprintf(&w.b, "typedef void (*%s)(void);\n", t.C)
	case model.Scalar, model.Second:
		w.name(d.Underlying)
		if d.Underlying.Kind == model.Array {
			w.value(d.Underlying) // C has no array of something incomplete
		}
		fmt.Fprintf(&w.b, "typedef %s;\n", d.Underlying.CDecl(t.C))
	case model.Enum:
		if tagged {
			fmt.Fprintf(&w.b, "enum %s { z_%s = %s }%s;\n", tag, tag, enumValue(d), enumPacking(d))
		} else {
			fmt.Fprintf(&w.b, "typedef %s %s;\n", d.Underlying.C, t.C)
		}
	default:
		kind := d.Kind
		if kind == model.Incomplete {
			kind = model.Struct
		}
		if tagged {
			fmt.Fprintf(&w.b, "%s;\n", t.C)
		} else {
			fmt.Fprintf(&w.b, "typedef %s z_%s %s;\n", kind, tag, tag)
		}
	}
}

// enumValue is a value that makes an enum as large as d and gives it a sign if d has one.
func enumValue(d *model.Decl) string {
	if d.Signed {
		return map[int64]string{1: "-1", 2: "-0x1ff", 4: "-1", 8: "-0x1ffffffff"}[d.Size]
	}
	return map[int64]string{1: "1", 2: "0x1ff", 4: "0", 8: "0x1ffffffff"}[d.Size]
}

// enumPacking is what C needs to make an enum smaller than an int.
func enumPacking(d *model.Decl) string {
	if d.Size < 4 {
		return " __attribute__((packed))"
	}
	return ""
}

// otherNumbers are the number types that the headers of CUDA and of other systems define, in C's own.
var otherNumbers = map[string]string{
	"cuuint32_t": "uint32_t", "cuuint64_t": "uint64_t", "__half": "uint16_t", "__nv_bfloat16": "uint16_t", "__float16": "uint16_t",
	"GLenum": "unsigned int", "GLuint": "unsigned int", "EGLint": "int32_t",
	"VdpDevice": "uint32_t", "VdpOutputSurface": "uint32_t", "VdpVideoSurface": "uint32_t",
	"cuComplex": "float _Complex", "cuFloatComplex": "float _Complex", "cuDoubleComplex": "double _Complex",
}

// value declares the type of something that is passed or held by value.
func (w *cWriter) value(t *model.Type) {
	if t.Kind == model.Array {
		w.value(t.Elem)
		return
	}
	w.name(t)
	if !t.Is(model.Struct) && !t.Is(model.Union) || w.complete[t.C] {
		return
	}
	w.complete[t.C] = true
	w.inside(t.Decl)
	name := t.C
	if tag, tagged := cutTag(t.C); !tagged {
		name = fmt.Sprintf("%s z_%s", t.Decl.Kind, tag)
	}
	fmt.Fprintf(&w.b, "%s {\n%s}%s;\n", name, w.members(t.Decl, "\t"), overaligned(t.Decl))
	fmt.Fprintf(&w.b, "_Static_assert(sizeof(%s) == %d && _Alignof(%s) == %d, \"%s\");\n", t.C, t.Decl.Size, t.C, t.Decl.Align, t.C)
}

// overaligned is the attribute of a record that wants more alignment than its
// members, "" for others.
func overaligned(d *model.Decl) string {
	natural := int64(1)
	for _, f := range d.Fields {
		natural = max(natural, f.Type.Align)
	}
	if d.Align <= natural {
		return ""
	}
	return fmt.Sprintf(" __attribute__((aligned(%d)))", d.Align)
}

// inside declares what the members of a record need.
func (w *cWriter) inside(d *model.Decl) {
	for _, f := range d.Fields {
		if in := nested(f.Type); in != nil {
			w.inside(in)
		} else {
			w.value(f.Type)
		}
	}
}

// nested is the record that a member of type t defines in place, nil where it
// does not.
func nested(t *model.Type) *model.Decl {
	if t = t.Element(); t.Kind == model.Named && t.Decl.Nested {
		return t.Decl
	}
	return nil
}

func (w *cWriter) members(d *model.Decl, indent string) string {
	var b strings.Builder
	for _, f := range d.Fields {
		if in := nested(f.Type); in != nil {
			name := f.C
			for t := f.Type; t.Kind == model.Array; t = t.Elem {
				name += fmt.Sprintf("[%d]", t.Len)
			}
			fmt.Fprintf(&b, "%s%s {\n%s%s} %s;\n", indent, in.Kind, w.members(in, indent+"\t"), indent, name)
			continue
		}
		bits := ""
		if f.Bits > 0 {
			bits = fmt.Sprint(" : ", f.Bits)
		}
		fmt.Fprintf(&b, "%s%s%s;\n", indent, f.Type.CDecl(f.C), bits)
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
	fmt.Fprintf(&b, "%s\n\n#pragma once\n\n", e.firstLine())
	for _, fn := range e.api.Funcs {
		fmt.Fprintf(&b, "typedef %s;\nstruct args_%s {\n", fn.PointerTo("fn_"+fn.Symbol), fn.Symbol)
		for i, p := range fn.Params {
			fmt.Fprintf(&b, "\t_Alignas(%d) %s;\n", model.Slot, p.Type.CDecl(fmt.Sprint("p", i)))
		}
		if _, end, result := fn.Layout(); end < result {
			fmt.Fprintf(&b, "\t_Alignas(%d) char rest[%d];\n", model.Slot, result-end)
		}
		if fn.Result.Kind != model.Void {
			fmt.Fprintf(&b, "\t_Alignas(%d) %s;\n", model.Slot, retType(fn).CDecl("ret"))
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

// cThunks prints the C functions that take the structs of arguments apart. All functions that
// get the places of the struct as they lie, equally many, and whose results have one size share
// one, so that a C compiler has little to do. The others have one each.
func (e *emitter) cThunks() string {
	var thunks, list strings.Builder
	printed := map[string]bool{}
	for _, fn := range e.api.Funcs {
		name, thunk := wordsThunk(fn)
		if !ofWords(fn) {
			name, thunk = typedThunk(fn)
		}
		if !printed[name] {
			printed[name] = true
			thunks.WriteString(thunk)
		}
		fmt.Fprintf(&list, "\t%s, /* %s */\n", name, fn.Symbol)
	}
	return e.render("call.c.tmpl", map[string]any{
		"FirstLine": e.firstLine(), "Prefix": e.prefix(), "Thunks": thunks.String(), "List": list.String(), "Count": len(e.api.Funcs), "Library": e.library(),
	})
}

// ofWords tells whether a function is called, wherever C is, with words as they lie in the struct.
func ofWords(fn *model.Func) bool {
	return !slices.ContainsFunc(model.ABIs, func(abi *model.ABI) bool { return !abi.Plan(fn).Plain() })
}

// wordsThunk is the thunk of all functions with as many words as fn, and as large a result.
func wordsThunk(fn *model.Func) (name, thunk string) {
	_, end, result := fn.Layout()
	var words, values []string
	for i := range end / model.Slot {
		words, values = append(words, "uint64_t"), append(values, fmt.Sprintf("words[%d]", i))
	}
	name, to, assign := fmt.Sprint("words", len(values)), "void", ""
	if len(words) == 0 {
		words, assign = []string{"void"}, "(void)words;\n\t"
	}
	if size := fn.Result.Size; fn.Result.Kind != model.Void {
		name, to = fmt.Sprint(name, "_", size), fmt.Sprintf("uint%d_t", 8*size)
		assign = fmt.Sprintf("*(%s *)(words + %d) = ", to, result/model.Slot)
	}
	return name, fmt.Sprintf("static void %s(void *fn, uint64_t *words)\n{\n\t%s((%s (*)(%s))fn)(%s);\n}\n", name, assign, to, strings.Join(words, ", "), strings.Join(values, ", "))
}

// typedThunk is the thunk of one function.
func typedThunk(fn *model.Func) (name, thunk string) {
	var args []string
	for i := range fn.Params {
		args = append(args, fmt.Sprint("s->p", i))
	}
	assign := "s->ret = "
	if fn.Result.Kind == model.Void {
		assign = ""
	}
	name = "t_" + fn.Symbol
	use := fmt.Sprintf("struct args_%s *s = (void *)words;\n\t", fn.Symbol)
	return name, fmt.Sprintf("static void %s(void *fn, uint64_t *words)\n{\n\t%s%s((fn_%s)fn)(%s);\n}\n", name, use, assign, fn.Symbol, strings.Join(args, ", "))
}
