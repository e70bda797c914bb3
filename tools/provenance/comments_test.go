package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestComments(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		want         []string
	}{
		{"none", "int a = 4 / 2;", nil},
		{"block", "int a; /* one\n two */ int b;", []string{"/* one\n two */"}},
		{"line", "int a; // one", []string{"// one"}},
		{"lines in a row are one", "// one\n  // two\nint a;", []string{"// one\n  // two"}},
		{"blocks in a row are one", "/* one */\n/* two */\nint a;", []string{"/* one */\n/* two */"}},
		{"code separates", "int a; // one\nint b; // two\n", []string{"// one", "// two"}},
		{"in a macro", "#define A \\\n /* one */ \\\n /* two */ \\\n 1", []string{"/* one */ \\\n /* two */"}},
		{"string", `char *s = "/* no \" // no"; // one`, []string{"// one"}},
		{"character", `char c = '"'; // one`, []string{"// one"}},
		{"quote left open", "#error don't\n// one", []string{"// one"}},
		{"quote in a comment", "/* don't */ int a; // one", []string{"/* don't */", "// one"}},
		{"block left open", "int a; /* one", []string{"/* one"}},
		{"shortest", "/**/ a /*/ b */", []string{"/**/", "/*/ b */"}},
		{"string left open at the end", `"one\`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for c := range comments([]byte(tt.source)) {
				got = append(got, string(c))
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestCommentsStop(t *testing.T) {
	for range comments([]byte("/* one */ int a; /* two */ int b;")) {
		break
	}
}

func FuzzComments(f *testing.F) {
	f.Add("int a; /* one */ // two\n'\\''")
	f.Fuzz(func(t *testing.T, source string) {
		for c := range comments([]byte(source)) {
			assert.Equal(t, byte('/'), c[0])
		}
	})
}
