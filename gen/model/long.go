package model

// Longs lists what a declares with C's long, which has 32 bits on Windows and 64 in the
// package: records, and functions that pass it or a pointer to it.
func Longs(a *API) (names []string) {
	for _, d := range a.Decls {
		if d.Kind == Struct || d.Kind == Union {
			if (&Type{Kind: Named, Decl: d}).HasLong() {
				names = append(names, d.C)
			}
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

// HasLong tells whether a value of the type has a long inside.
func (t *Type) HasLong() bool {
	switch {
	case t.Kind == Array:
		return t.Elem.HasLong()
	case t.Is(Scalar), t.Is(Second):
		return t.Decl.Underlying.HasLong()
	case t.Is(Struct), t.Is(Union):
		for _, f := range t.Decl.Fields {
			if f.Type.HasLong() {
				return true
			}
		}
	}
	return t.Kind == Basic && !t.Fixed && (t.C == "long" || t.C == "unsigned long")
}
