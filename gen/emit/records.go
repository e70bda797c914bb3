package emit

import (
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/cudabind/cudabind/gen/model"
)

// records prints structs and unions: those that each system lays out alike in one file, the
// others in a file for each of the layouts.
func (e *emitter) records() error {
	f := e.file()
	var apart []*model.Decl
	bits, bools := false, false
	for _, d := range e.api.Decls {
		switch {
		case d.Kind != model.Struct && d.Kind != model.Union:
			continue
		case len(d.Elsewhere) > 0:
			apart = append(apart, d)
		default:
			record(f, d)
		}
		for _, m := range d.Fields {
			bits = bits || m.Bits > 0
			bools = bools || m.Bits > 0 && isBool(m.Type)
		}
	}
	if bits {
		data := map[string]any{"FirstLine": e.firstLine(), "Package": e.pkg.Name, "Bools": bools}
		if err := e.template("zbits.go", "bits.go.tmpl", data); err != nil {
			return err
		}
	}
	if err := e.save("zstructs.go", f); err != nil || len(apart) == 0 {
		return err
	}
	others := ""
	for _, l := range []struct{ system, file, others string }{
		{"linux_arm64", "zstructs_linux_arm64.go", "!(linux && arm64)"}, {"windows_amd64", "zstructs_windows.go", "!windows"},
	} {
		if !slices.ContainsFunc(apart, func(d *model.Decl) bool { return d.On(l.system) != d }) {
			continue
		}
		if err := e.recordsOn(l.system, l.file, "", apart); err != nil {
			return err
		}
		others += l.others + " && "
	}
	return e.recordsOn("linux_amd64", "zstructs_other.go", strings.TrimSuffix(others, " && "), apart)
}

// recordsOn prints records as a system lays them out.
func (e *emitter) recordsOn(system, file, build string, records []*model.Decl) error {
	f := e.file()
	if build != "" {
		f = e.fileOn(build)
	}
	for _, d := range records {
		record(f, d.On(system))
	}
	return e.save(file, f)
}

func record(f *jen.File, d *model.Decl) {
	docs(f, d.Doc)
	if d.Kind == model.Struct {
		f.Type().Id(d.Go).StructFunc(func(g *jen.Group) { structFields(g, d) })
	} else {
		f.Type().Id(d.Go).Struct(
			jen.Id("_").Qual("structs", "HostLayout"),
			jen.Id("data").Add(blob(d)),
		)
	}
	accessors(f, d, d, 0)
	if d.Align > 8 {
		aligned(f, d)
	}
}

// structFields prints members at their offsets, with the gaps written out. A
// record that is aligned more strictly than its members begins with an empty
// array that is aligned so too.
func structFields(g *jen.Group, d *model.Decl) {
	g.Id("_").Qual("structs", "HostLayout")
	natural := int64(1)
	for _, m := range d.Fields {
		if !d.Apart(m) {
			natural = max(natural, m.Type.GoAlign())
		}
	}
	if natural < min(d.Align, 8) {
		g.Id("_").Index(jen.Lit(0)).Add(word(d.Align))
	}
	pad := func(n int64) {
		if n > 0 {
			g.Id("_").Index(jen.Lit(int(n))).Byte()
		}
	}
	var at int64
	for i, m := range d.Fields {
		if d.Apart(m) {
			if i == 0 || !d.Apart(d.Fields[i-1]) {
				pad(m.Offset - at)
				at = storage(g, d, d.Fields[i:])
			}
			continue
		}
		pad(m.Offset - at)
		groupDocs(g, m.Doc)
		g.Id(m.Go).Add(goType(m.Type))
		at = m.Offset + m.Type.Size
	}
	pad(d.Size - at)
}

// blob is memory of a union's size and alignment.
func blob(d *model.Decl) *jen.Statement {
	return jen.Index(jen.Lit(int(d.Size / min(d.Align, 8)))).Add(word(d.Align))
}

// word is a number of an alignment, as far as Go has one.
func word(align int64) *jen.Statement {
	switch align {
	case 1:
		return jen.Byte()
	case 2:
		return jen.Uint16()
	case 4:
		return jen.Uint32()
	}
	return jen.Uint64()
}

// accessors prints methods for each member that Go has no field for: those of a union, those
// of an unnamed record inside d, and those that are apart.
//
//	func (u *CUstreamBatchMemOpParams) WaitValue() *CUstreamMemOpWaitValueParams {
//		return (*CUstreamMemOpWaitValueParams)(unsafe.Add(unsafe.Pointer(u), 0))
//	}
func accessors(f *jen.File, d, in *model.Decl, base int64) {
	for _, m := range in.Fields {
		placed := *m
		placed.Offset += base
		switch {
		case m.C == "":
			accessors(f, d, m.Type.Decl, placed.Offset)
		case m.Bits > 0:
			bitField(f, d, &placed)
		case d.Apart(&placed):
			copied(f, d, &placed)
		case in != d || d.Kind == model.Union:
			overlaid(f, d, in, &placed)
		}
	}
}

func overlaid(f *jen.File, d, in *model.Decl, m *model.Field) {
	of := ""
	if in.Kind == model.Union {
		of = " of the union"
	}
	f.Commentf("// %s is the member %s%s, where it lies in u.", m.Go, m.C, of)
	moreDocs(f, m)
	f.Func().Params(jen.Id("u").Op("*").Id(d.Go)).Id(m.Go).Params().Op("*").Add(goType(m.Type)).Block(
		jen.Return(jen.Parens(jen.Op("*").Add(goType(m.Type))).Call(place(m.Offset))),
	)
}

// copied prints how to read and write a member that packing puts where no pointer of its type
// may point:
//
//	func (u *CUthing) Count() (v uint32) {
//		*(*[4]byte)(unsafe.Pointer(&v)) = *(*[4]byte)(unsafe.Add(unsafe.Pointer(u), 1))
//		return v
//	}
//
//	func (u *CUthing) SetCount(v uint32) {
//		*(*[4]byte)(unsafe.Add(unsafe.Pointer(u), 1)) = *(*[4]byte)(unsafe.Pointer(&v))
//	}
func copied(f *jen.File, d *model.Decl, m *model.Field) {
	bytes := func(at *jen.Statement) *jen.Statement {
		return jen.Op("*").Parens(jen.Op("*").Index(jen.Lit(int(m.Type.Size))).Byte()).Call(at)
	}
	value := bytes(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("v")))
	member := bytes(place(m.Offset))
	f.Commentf("// %s is the member %s, which C packs.", m.Go, m.C)
	if m.Type.HasPointer() {
		f.Comment("// Go's garbage collector does not look there: keep what it points to alive.")
	}
	moreDocs(f, m)
	f.Func().Params(jen.Id("u").Op("*").Id(d.Go)).Id(m.Go).Params().Params(jen.Id("v").Add(goType(m.Type))).Block(
		value.Clone().Op("=").Add(member),
		jen.Return(jen.Id("v")),
	)
	f.Commentf("// Set%s sets the member %s.", m.Go, m.C)
	f.Func().Params(jen.Id("u").Op("*").Id(d.Go)).Id("Set" + m.Go).Params(jen.Id("v").Add(goType(m.Type))).Block(
		member.Clone().Op("=").Add(value),
	)
}

// moreDocs continues the comment of a method with that of its member.
func moreDocs(f *jen.File, m *model.Field) {
	if len(m.Doc) > 0 {
		f.Comment("//")
		docs(f, m.Doc)
	}
}

// place is the address at bytes after the receiver's.
func place(at int64) *jen.Statement {
	start := jen.Qual("unsafe", "Pointer").Call(jen.Id("u"))
	if at == 0 {
		return start
	}
	return jen.Qual("unsafe", "Add").Call(start, jen.Lit(int(at)))
}

// aligned prints an allocator for a type whose alignment Go cannot express:
//
//	func NewCUtensorMap() *CUtensorMap {
//		mem := make([]byte, 128+127)
//		return (*CUtensorMap)(unsafe.Pointer(&mem[-uintptr(unsafe.Pointer(&mem[0]))%128]))
//	}
func aligned(f *jen.File, d *model.Decl) {
	align := jen.Lit(int(d.Align))
	f.Commentf("// New%s allocates a zero %s at a multiple of %d bytes, as C requires and Go does not by itself.", d.Go, d.Go, d.Align)
	f.Func().Id("New"+d.Go).Params().Op("*").Id(d.Go).Block(
		jen.Id("mem").Op(":=").Make(jen.Index().Byte(), jen.Lit(int(d.Size+d.Align-1))),
		jen.Id("gap").Op(":=").Op("-").Uintptr().Call(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("mem").Index(jen.Lit(0)))).Op("%").Add(align),
		jen.Return(jen.Parens(jen.Op("*").Id(d.Go)).Call(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("mem").Index(jen.Id("gap"))))),
	)
}
