package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSelf tests structs that point to themselves through typedefs and qualifiers, by whichever of them they are
// met first.
func TestSelf(t *testing.T) {
	const typedef = "struct N; typedef N *NP; struct N { NP next; NP kids[2]; int v; };\n"
	for _, c := range []struct{ name, source, want string }{
		{"const, read from a variable first", "struct N { const N *next; int v; };\n__device__ N head;\n__global__ void f(const N *p, int *o) { *o = p->v + head.v; }",
			"type N struct {\n\tNext safe.Address[N] // const N *\n\tV    int32\n\t_    [4]byte\n}"},
		{"a typedef, by the pointer first", typedef + "__global__ void f(N *p, int *o) { *o = p->kids[1]->v; }",
			"type N struct {\n\tNext safe.Address[N] // NP\n\tKids [2]safe.Address[N]\n\tV    int32\n\t_    [4]byte\n}"},
		{"a typedef, by itself first", typedef + "__global__ void f(NP p, int *o) { *o = p->v; }",
			"type N struct {\n\tNext safe.Address[N] // NP\n\tKids [2]safe.Address[N]\n\tV    int32\n\t_    [4]byte\n}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t, map[string]string{"x.cu": c.source})
			out, err := f.run("x.cu")
			require.NoError(t, err, out)
			text := f.read("x_cu.go")
			assert.Contains(t, text, c.want, "%s", text[strings.LastIndex(text, "type N"):])
		})
	}
}

// TestApart tests that types which one line declares are told apart.
func TestApart(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "struct Two { struct { int q; } a; struct { float r; } b; union { int i; char c; } u; };\n__global__ void f(Two t, int *o) { *o = t.a.q; }"})
	out, err := f.run("x.cu")
	require.NoError(t, err, out)
	text := f.read("x_cu.go")
	assert.Contains(t, text, "type Two struct {\n\tA TwoA\n\tB TwoB\n\tU TwoU\n}")
	assert.Contains(t, text, "type TwoB struct {\n\tR float32\n}")
}

// TestPadding tests that a base inside of the padding of another one is the same for every NVRTC.
func TestPadding(t *testing.T) {
	const source = "struct No {};\nstruct B : No { int a; char b; };\nstruct C : No { char c; };\nstruct D : B, C { char d; };\n__global__ void f(D d, int *o) { *o = d.d; }"
	for _, version := range []string{"12.0", "13.0", "13.5"} {
		f := newFolder(t, map[string]string{"x.cu": source})
		out, err := f.run("-nvrtc", nvrtcFolder(t, version), "x.cu")
		require.NoError(t, err, out)
		assert.Contains(t, f.read("x_cu.go"), "type D struct {\n\tA int32\n\tB uint8 // char\n\tC\n\tD uint8 // char\n\t_ [1]byte\n}", version)
	}
}
