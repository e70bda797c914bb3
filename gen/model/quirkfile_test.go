package model

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadQuirks(t *testing.T) {
	got, err := ReadQuirks("more.json", []byte(`[
  {"api": "driver", "from": "13.6", "to": "13.7", "quirk": "callback", "name": "CUnewFn", "thread": "its own", "go": true, "reason": "measured"},

  {"api": "runtime",
   "quirk": "skip", "name": "CUDART_NEW", "reason": "a string"}
]
`))
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.Equal(t, []string{"driver", "13.6", "13.7", "CUnewFn", "measured", "more.json:2"},
		[]string{got[0].api, got[0].from, got[0].to, got[0].name, got[0].reason, got[0].pos})
	assert.Equal(t, "more.json:4", got[1].pos)

	a := apiOf("cuTake")
	a.Decls = []*Decl{{Kind: Callback, C: "CUnewFn"}}
	assert.True(t, got[0].do(a, "CUnewFn"))
	assert.Equal(t, "its own", a.Decls[0].Thread)
	assert.True(t, a.Decls[0].GoAllowed)
}

// A callback of any function can run inside the call, and the text says no more than that.
func TestCallingThread(t *testing.T) {
	rows, err := ReadQuirks("q.json", []byte(`[{"api": "driver", "quirk": "callingThread", "name": "cuVisit.fn", "reason": "measured"}]`))
	require.NoError(t, err)
	visitor := &Decl{Kind: Callback, C: "CUvisitor", Thread: "another", GoAllowed: true}
	a := apiOf("cuVisit")
	a.Funcs[0].Params = []*Param{{C: "fn", Type: &Type{Kind: Named, Decl: visitor}}}
	require.True(t, rows[0].do(a, "cuVisit.fn"))
	assert.Equal(t, "the calling thread, inside the call", a.Funcs[0].Callbacks[0].Thread)
	assert.False(t, a.Funcs[0].Callbacks[0].GoAllowed)
}

func TestReadQuirksErrors(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "q.json:1: want an array of quirks"},
		{"no array", "\n{}", "q.json:2: want an array of quirks"},
		{"no JSON", "[\n  {\"api\": driver}\n]", "q.json:2: invalid character 'd'"},
		{"field that is none", "[\n\n  {\"nmae\": \"x\"}\n]", `q.json:3: json: unknown field "nmae"`},
		{"type", `[{"go": "yes"}]`, "q.json:1: json: cannot unmarshal string"},
		{"no end", "[\n", "q.json:2: the array of quirks does not end"},
		{"something after it", "[]\n[]", "q.json:2: something follows"},
		{"API", `[{"api": "nvcuvid"}]`, `q.json:1: "api" is "nvcuvid": it is driver or runtime`},
		{"kind", `[{"api": "driver", "quirk": "hide"}]`, `"quirk" is "hide": it is callback, callingThread, enum, group, ignore, opaque, rename or skip`},
		{"name", `[{"api": "driver", "quirk": "opaque"}]`, `"name" is missing`},
		{"reason", `[{"api": "driver", "quirk": "opaque", "name": "*.x"}]`, `*.x: "reason" is missing`},
		{"version", `[{"api": "driver", "quirk": "opaque", "name": "*.x", "reason": "r", "from": "13"}]`, `*.x: "from" and "to" are versions`},
		{"thread", `[{"api": "driver", "quirk": "callback", "name": "CUx", "reason": "r"}]`, `CUx: "thread" is missing`},
		{"Go on the calling thread", `[{"api": "driver", "quirk": "callback", "name": "CUx", "thread": "The calling thread", "go": true, "reason": "r"}]`, `CUx: "go" is true, but a callback that runs on The calling thread cannot be a Go function`},
		{"Go inside a call", `[{"api": "driver", "quirk": "callback", "name": "CUx", "thread": "a thread that is inside a call", "go": true, "reason": "r"}]`, `cannot be a Go function`},
		{"Go name", `[{"api": "driver", "quirk": "rename", "name": "CUx", "as": "lower", "reason": "r"}]`, `CUx: "as" is no exported name of Go`},
		{"enum", `[{"api": "driver", "quirk": "enum", "name": "cuX.flags", "reason": "r"}]`, `cuX.flags: "as" is missing`},
		{"chapter", "[\n{\"api\": \"driver\", \"quirk\": \"group\",\n\"name\": \"cuX\", \"reason\": \"r\"}]", `q.json:2: cuX: "chapter" is missing`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadQuirks("q.json", []byte(tt.text))
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// What stops the generator can be pasted into a file, which then gets past it.
func TestAdvice(t *testing.T) {
	make := func() *API {
		a := apiOf("cuTake")
		a.Groups = []Group{{Name: "CUDA_THING"}}
		a.Funcs[0].Group = ""
		a.Decls = []*Decl{{Kind: Callback, C: "CUnewFn", Result: nothing()}}
		a.Consts = []*Const{{C: "CU_NEW"}}
		return a
	}
	err := Complete(make(), Options{Partial: true})
	require.ErrorContains(t, err, "keep them in a file for -quirks:\n[\n")
	rows, err := ReadQuirks("q.json", []byte(err.Error()[strings.Index(err.Error(), "[\n"):]))
	require.NoError(t, err)
	require.Len(t, rows, 3)
	a := make()
	require.NoError(t, Complete(a, Options{Partial: true, Quirks: rows}))
	assert.False(t, a.Decls[0].GoAllowed, "the cautious choice")
	assert.Equal(t, "CUDA_THING", a.Funcs[0].Group)
	assert.Empty(t, a.Consts)
}

// A row of the table that a new header has no use for can be left out.
func TestIgnore(t *testing.T) {
	take := func() *API {
		a := apiOf("cuTake")
		a.Decls = []*Decl{{Kind: Enum, C: "CUresult"}}
		return a
	}
	require.ErrorContains(t, Complete(take(), Options{}), `"quirk":"ignore","name":"CUhostFn","reason":"gone in CUDA `)
	assert.NoError(t, Complete(take(), Options{Quirks: ignoreAll(t)}))
}

// The status type is known from the row, and missing it is an error.
func TestNoStatusType(t *testing.T) {
	assert.ErrorContains(t, Complete(apiOf("cuTake"), Options{Quirks: ignoreAll(t)}), "declares no CUresult")
}

// A row that finds nothing is named by its place.
func TestUnusedRow(t *testing.T) {
	const text = `[
{"api": "driver", "quirk": "opaque", "name": "cuTake.gone", "reason": "a number"},
{"api": "driver", "quirk": "ignore", "name": "CUnone", "reason": "r"},
{"api": "runtime", "quirk": "opaque", "name": "cuTake.other", "reason": "r"},
{"api": "driver", "quirk": "opaque", "name": "cuTake.later", "reason": "r", "from": "99.0"}]`
	rows, err := ReadQuirks("q.json", []byte(text))
	require.NoError(t, err)
	err = Complete(apiOf("cuTake"), Options{Partial: true, Quirks: rows})
	require.Error(t, err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 2)
	assert.ErrorContains(t, err, "q.json:2: the quirk for cuTake.gone (a number) matches nothing in cuda.h")
	assert.ErrorContains(t, err, "q.json:3: the quirk for CUnone (r) matches nothing in cuda.h")
}

// ignoreAll are the rows that a header without any declaration asks for, ten at a time.
func ignoreAll(t *testing.T) (all []Quirk) {
	for {
		a := apiOf("cuTake")
		a.Decls = []*Decl{{Kind: Enum, C: "CUresult"}}
		err := Complete(a, Options{Quirks: all})
		if err == nil {
			return all
		}
		text := err.Error()
		rows, err := ReadQuirks("q.json", []byte(text[strings.Index(text, "[\n"):]))
		require.NoError(t, err)
		require.NotEmpty(t, rows)
		all = append(all, rows...)
	}
}
