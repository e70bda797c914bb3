package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

func TestReplace(t *testing.T) {
	got, err := replace("a\n<!-- t -->\nold\nlines\n<!-- end -->\nb\n<!-- u -->\nkept\n<!-- end -->\n", "t", "$1 new\n")
	require.NoError(t, err)
	assert.Equal(t, "a\n<!-- t -->\n$1 new\n<!-- end -->\nb\n<!-- u -->\nkept\n<!-- end -->\n", got)
	_, err = replace("no place\n", "t", "")
	assert.ErrorContains(t, err, `no place for the table "t"`)
}

func TestCounts(t *testing.T) {
	a := &model.API{Funcs: []*model.Func{{Symbol: "cuA"}, {Symbol: "cuB"}}, Decls: []*model.Decl{{Kind: model.Struct}, {Kind: model.Union}, {Kind: model.Struct, Nested: true}, {Kind: model.Enum}}}
	assert.Equal(t, "1", count(symbols(a), map[string]bool{"cuB": true, "cuC": true}))
	assert.Equal(t, 2, kinds(a, model.Struct, model.Union))
}
