package emit

import (
	"fmt"
	"strings"

	"github.com/cudabind/cudabind/tools/kernels/model"
	"github.com/dave/jennifer/jen"
)

// kernel writes a kernel's type with its typed methods.
func (w *writer) kernel(k *model.Kernel) {
	name := w.unit.Go + k.Go
	comment(w.File, fmt.Sprintf("%s is the kernel at %s:%d:\n\n\t%s", name, w.unit.Source, k.Line, k.Signature), k.Doc...)
	w.Type().Id(name).Struct(jen.Op("*").Qual(model.Safe, "Kernel"))
	w.Line()
	comment(w.File, "Launch enqueues the kernel on stream: see [safe.Kernel.Launch]."+contract(k))
	w.method(name, "Launch", k, jen.Id("stream").Op("*").Qual(model.Safe, "Stream"), jen.Error(), func(args []jen.Code) *jen.Statement {
		return jen.Id("k").Dot("Kernel").Dot("Launch").Call(append([]jen.Code{jen.Id("stream"), jen.Id("config")}, args...)...)
	})
	comment(w.File, "Node returns a launch of the kernel as a node of a graph: see [safe.KernelNode].")
	w.method(name, "Node", k, nil, jen.Qual(model.Safe, "NodeParams"), func(args []jen.Code) *jen.Statement {
		return jen.Qual(model.Safe, "KernelNode").Call(append([]jen.Code{jen.Id("k").Dot("Kernel"), jen.Id("config")}, args...)...)
	})
	comment(w.File, "Batch adds a launch of the kernel to batch: see [safe.Batch.Launch].")
	w.method(name, "Batch", k, jen.Id("batch").Op("*").Qual(model.Safe, "Batch"), jen.Error(), func(args []jen.Code) *jen.Statement {
		return jen.Id("batch").Dot("Launch").Call(append([]jen.Code{jen.Id("k").Dot("Kernel"), jen.Id("config")}, args...)...)
	})
}

// contract says what the source tells of a launch beside its parameters.
func contract(k *model.Kernel) string {
	var all []string
	if len(k.ReadOnly) > 0 {
		all = append(all, "The kernel only reads "+strings.Join(k.ReadOnly, ", ")+".")
	}
	if k.MaxThreads > 0 {
		all = append(all, fmt.Sprintf("A block has at most %d threads.", k.MaxThreads))
	}
	if k.Cluster[0] > 0 {
		all = append(all, fmt.Sprintf("Its clusters have %d x %d x %d blocks.", k.Cluster[0], k.Cluster[1], k.Cluster[2]))
	}
	if len(all) == 0 {
		return ""
	}
	return "\n\n" + strings.Join(all, "\n")
}

// method writes a method with the kernel's parameters, which calls what call returns.
func (w *writer) method(receiver, name string, k *model.Kernel, first, result *jen.Statement, call func(args []jen.Code) *jen.Statement) {
	var parameters []jen.Code
	if first != nil {
		parameters = append(parameters, first)
	}
	parameters = append(parameters, jen.Id("config").Qual(model.Safe, "LaunchConfig"))
	parameters = append(parameters, grouped(k.Arguments, func(a model.Argument) *jen.Statement {
		if a.Pass == model.View {
			return jen.Id(a.Type.Name + "Arg")
		}
		return goType(a.Type)
	})...)
	w.Func().Params(jen.Id("k").Id(receiver)).Id(name).Params(parameters...).Add(result).BlockFunc(func(g *jen.Group) {
		views(g, k)
		var args []jen.Code
		for _, a := range k.Arguments {
			args = append(args, pass(a))
		}
		g.Return(call(args))
	})
	w.Line()
}

// grouped writes parameters: neighbours of one type share it.
func grouped(arguments []model.Argument, typeOf func(model.Argument) *jen.Statement) (all []jen.Code) {
	for i := 0; i < len(arguments); {
		t := typeOf(arguments[i])
		var names []jen.Code
		for same := t.GoString(); i < len(arguments) && typeOf(arguments[i]).GoString() == same; i++ {
			names = append(names, jen.Id(arguments[i].Name))
		}
		all = append(all, jen.List(names...).Add(t))
	}
	return all
}

// views writes what makes structs with pointers for the device.
func views(g *jen.Group, k *model.Kernel) {
	first := true
	for _, a := range k.Arguments {
		if a.Pass != model.View {
			continue
		}
		if first {
			g.Var().Id("room").Index(jen.Lit(8)).Qual(model.Safe, "Arg")
			g.Id("uses").Op(":=").Append(jen.Id("room").Index(jen.Empty(), jen.Lit(0)), jen.Id("config").Dot("Uses").Op("..."))
			first = false
		}
		g.List(jen.Id(a.Name+"Device"), jen.Id("uses")).Op(":=").Id(a.Name).Dot("device").Call(jen.Id("uses"))
	}
	if !first {
		g.Id("config").Dot("Uses").Op("=").Id("uses")
	}
}

// pass returns the safe.Arg of an argument.
func pass(a model.Argument) jen.Code {
	switch a.Pass {
	case model.Pointer:
		return jen.Qual(model.Safe, "PointerArg").Call(jen.Id(a.Name))
	case model.VoidPointer:
		return jen.Qual(model.Safe, "VoidPointerArg").Call(jen.Id(a.Name))
	case model.Object:
		return jen.Id(a.Name).Dot("Arg").Call()
	case model.ByRef:
		return jen.Qual(model.Safe, "Ref").Call(jen.Op("&").Id(a.Name))
	case model.View:
		return jen.Qual(model.Safe, "Ref").Call(jen.Op("&").Id(a.Name + "Device"))
	}
	return jen.Qual(model.Safe, "Val").Call(jen.Id(a.Name))
}
