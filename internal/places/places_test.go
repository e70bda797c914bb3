package places_test

import (
	"testing"

	"github.com/cudabind/cudabind/internal/places"
	"github.com/stretchr/testify/assert"
)

func TestList(t *testing.T) {
	var l places.List
	assert.Empty(t, l.String())
	for err, want := range map[string]string{
		"cuda: liba.so: no such file; looked in the system's library path, /c/cudabind/libs/a/*: get it":        "cuda: liba.so: no such file: get it",
		"cuda: libb.so: no such file; looked in the system's library path, /c/cudabind/libs/b/*; x: no: get it": "cuda: libb.so: no such file; x: no: get it",
		"cuda: libc.so: no such file; looked in the system's library path":                                      "cuda: libc.so: no such file",
		"cuda: libd.so: too old: get it": "cuda: libd.so: too old: get it",
	} {
		assert.Equal(t, want, l.Cut(err))
	}
	assert.Equal(t, "looked in the system's library path, /c/cudabind/libs/*/*\n", l.String())
}
