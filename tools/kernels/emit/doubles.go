package emit

import (
	"fmt"

	"github.com/cudabind/cudabind/tools/kernels/model"
	"github.com/dave/jennifer/jen"
)

const simPath = "github.com/cudabind/cudabind/tools/simdriver/sim"

// Doubles returns a test file with a type for Go functions that stand for the unit's kernels on the
// simulated driver.
func Doubles(pkg string, u *model.Unit, image *Image) ([]byte, error) {
	constraint := "(linux && (cgo || cudabind_nocgo)) || (windows && amd64)" // where there is a package sim
	if u.Long && image.source() {
		constraint = "linux && (cgo || cudabind_nocgo)"
	}
	w := &writer{newFile(pkg, u, constraint), u, image}
	name := u.Go + "Doubles"
	comment(w.File, fmt.Sprintf("%s are Go functions that do the work of the kernels of %s on the simulated driver: see\n[sim.Control.Kernel]. The launch of a kernel without one fails as that of a faulty kernel does:\nthe next wait returns the error, and [sim.Control.Violation] names the kernel.", name, u.Source))
	w.Type().Id(name).StructFunc(func(g *jen.Group) {
		for _, k := range u.Kernels {
			g.Id(k.Go).Add(double(k))
		}
	})
	w.Line()
	comment(w.File, "Register registers them.")
	w.Func().Params(jen.Id("d").Id(name)).Id("Register").Params(jen.Id("c").Qual(simPath, "Control")).Error().BlockFunc(func(g *jen.Group) {
		for _, k := range u.Kernels {
			g.If(jen.Id("d").Dot(k.Go).Op("==").Nil()).Block(
				jen.Id("d").Dot(k.Go).Op("=").Add(double(k)).Block(jen.Panic(jen.Lit(fmt.Sprintf("%s.%s is nil: kernel %s has no double", name, k.Go, k.Signature)))))
		}
		if len(u.Kernels) == 0 {
			g.Return(jen.Nil())
			return
		}
		g.Return(jen.Qual("errors", "Join").CallFunc(func(g *jen.Group) {
			for _, k := range u.Kernels {
				g.Line().Id("c").Dot("Kernel").Call(jen.Lit(image.name(k.Symbol, k.Expression)), jen.Id("d").Dot(k.Go))
			}
			g.Line()
		}))
	})
	return render(w.File)
}

// double is the type of a function that stands for a kernel.
func double(k *model.Kernel) *jen.Statement {
	parameters := []jen.Code{jen.Id("grid").Qual(simPath, "Grid")}
	return jen.Func().Params(append(parameters, grouped(k.Arguments, func(a model.Argument) *jen.Statement {
		switch a.Pass {
		case model.Pointer:
			return jen.Index().Add(goType(a.Elem))
		case model.VoidPointer:
			return jen.Index().Byte()
		case model.Object:
			return jen.Uint64()
		}
		return goType(a.Type)
	})...)...)
}
