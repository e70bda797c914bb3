package emit

import "github.com/dave/jennifer/jen"

// vars prints a function for each variable that the library exports:
//
//	func CUTENSOR_COMPUTE_DESC_32F() (v CutensorComputeDescriptor_t, err error) {
//		p, err := address("CUTENSOR_COMPUTE_DESC_32F")
//		if err != nil {
//			return v, err
//		}
//		return *(*CutensorComputeDescriptor_t)(p), nil
//	}
func (e *emitter) vars() error {
	f := e.file()
	for _, v := range e.api.Vars {
		f.Commentf("// %s returns the value of the variable %s, which the library exports.", v.Go, v.C)
		f.Func().Id(v.Go).Params().Params(jen.Id("v").Add(goType(v.Type)), jen.Err().Error()).Block(
			jen.List(jen.Id("p"), jen.Err()).Op(":=").Id("address").Call(jen.Lit(v.C)),
			jen.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Id("v"), jen.Err())),
			jen.Return(jen.Op("*").Parens(jen.Op("*").Add(goType(v.Type))).Call(jen.Id("p")), jen.Nil()),
		)
	}
	return e.save("zvars.go", f)
}
