package model

import (
	"errors"
	"fmt"
	"slices"
)

// checkPFNs compares every function with what cudaTypedefs.h says of it: two
// readings of the same prototype by NVIDIA. A function whose form it does not
// know is an error, since then one of the two was misread.
func checkPFNs(a *API) error {
	byFunc := pfnsByFunc(a)
	var errs []error
	for _, f := range a.Funcs {
		base, _, _ := Base(f.Symbol)
		forms := byFunc[base]
		if len(forms) == 0 || slices.ContainsFunc(forms, func(p *PFN) bool { return sameForm(f, p) }) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s contradicts cudaTypedefs.h, which knows %d other forms of %s", f.Prototype(), len(forms), base))
	}
	return errors.Join(errs...)
}

func pfnsByFunc(a *API) map[string][]*PFN {
	m := map[string][]*PFN{}
	for _, p := range a.PFNs {
		m[p.Func] = append(m[p.Func], p)
	}
	for _, ps := range m {
		slices.SortFunc(ps, func(x, y *PFN) int { return x.Version - y.Version })
	}
	return m
}

// pfnVersion is the version that cudaTypedefs.h gives for a symbol, 0 where it
// gives none. The nth variant of a function is the nth form; where their
// numbers differ it is the oldest form that looks the same.
func pfnVersion(a *API, f *Func) int {
	base, _, thread := Base(f.Symbol)
	forms := pfnsByFunc(a)[base]
	var variants []*Func
	for _, g := range a.Funcs {
		if b, _, t := Base(g.Symbol); b == base && t == thread {
			variants = append(variants, g)
		}
	}
	slices.SortFunc(variants, func(x, y *Func) int {
		_, xv, _ := Base(x.Symbol)
		_, yv, _ := Base(y.Symbol)
		return xv - yv
	})
	if i := slices.Index(variants, f); len(variants) == len(forms) && sameForm(f, forms[i]) {
		return atLeast(forms[i].Version, thread)
	}
	for _, p := range forms {
		if sameForm(f, p) {
			return atLeast(p.Version, thread)
		}
	}
	return 0
}

// atLeast: the per-thread variants came with CUDA 7.0.
func atLeast(version int, thread string) int {
	if thread != "" {
		return max(version, 7000)
	}
	return version
}

func sameForm(f *Func, p *PFN) bool {
	return sameType(f.Result, p.Result) && slices.EqualFunc(f.Params, p.Params, func(x, y *Param) bool { return sameType(x.Type, y.Type) })
}

func sameType(x, y *Type) bool {
	if x.Kind != y.Kind || x.Kind != Void && x.Size != y.Size {
		return false
	}
	switch x.Kind {
	case Pointer, Array:
		return x.Len == y.Len && x.Elem.Const == y.Elem.Const && sameType(x.Elem, y.Elem)
	case Named:
		return x.Decl.C == y.Decl.C
	case Basic:
		gx, _ := BasicName(x.C)
		gy, _ := BasicName(y.C)
		return gx == gy
	}
	return true
}
