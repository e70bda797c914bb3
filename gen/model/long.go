package model

import "slices"

// Longs lists what a declares with C's long, which has 32 bits on Windows and 64 in the package,
// or with wchar_t, which has 16 and 32: records, and functions that pass one or a pointer to it.
func Longs(a *API) (names []string) {
	for _, d := range a.Decls {
		if d.HasLong() {
			names = append(names, d.C)
		}
	}
	for _, f := range a.Funcs {
		long := pointsToLong(f.Result)
		for _, p := range f.Params {
			long = long || pointsToLong(p.Type)
		}
		if long {
			names = append(names, f.Symbol)
		}
	}
	return names
}

func pointsToLong(t *Type) bool {
	if t.Kind == Pointer {
		return !t.Elem.Is(Struct) && !t.Elem.Is(Union) && pointsToLong(t.Elem)
	}
	return t.HasLong()
}

// HasLong tells whether a record has a long or a wchar_t inside.
func (d *Decl) HasLong() bool {
	return slices.ContainsFunc(d.Fields, func(f *Field) bool { return f.Type.HasLong() })
}

// HasLong tells whether a value of the type has a long or a wchar_t inside.
func (t *Type) HasLong() bool {
	switch {
	case t.Kind == Array:
		return t.Elem.HasLong()
	case t.Is(Scalar), t.Is(Second):
		return t.Decl.Underlying.HasLong()
	case t.Kind == Named:
		return t.Decl.HasLong()
	}
	return t.Kind == Basic && !t.Fixed && (t.C == "long" || t.C == "unsigned long" || t.C == "wchar_t")
}
