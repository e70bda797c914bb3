package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCommands(t *testing.T) {
	for _, c := range []struct {
		name, cc, wrapper  string
		compile, run, test []string
	}{
		{"neither", "", "", []string{"cc", "-c", "a.c"}, []string{"./a", "b"}, []string{"go", "test", "-v", "."}},
		{"spaces", " ", " ", []string{"cc", "-c", "a.c"}, []string{"./a", "b"}, []string{"go", "test", "-v", "."}},
		{"a compiler", "gcc", "", []string{"gcc", "-c", "a.c"}, []string{"./a", "b"}, []string{"go", "test", "-v", "."}},
		{"a compiler with arguments", "gcc -m64  -g", "", []string{"gcc", "-m64", "-g", "-c", "a.c"}, []string{"./a", "b"}, []string{"go", "test", "-v", "."}},
		{"a wrapper", "", "qemu-x", []string{"cc", "-c", "a.c"}, []string{"qemu-x", "./a", "b"}, []string{"go", "test", "-exec", "qemu-x", "-v", "."}},
		{"a wrapper with arguments", "", "qemu-x -L /usr", []string{"cc", "-c", "a.c"}, []string{"qemu-x", "-L", "/usr", "./a", "b"}, []string{"go", "test", "-exec", "qemu-x -L /usr", "-v", "."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CC", c.cc)
			t.Setenv(Wrapper, c.wrapper)
			assert.Equal(t, c.compile, CC("-c", "a.c").Args)
			assert.Equal(t, c.run, Built("./a", "b").Args)
			assert.Equal(t, c.test, Go("test", "-v", ".").Args)
		})
	}
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler -m64")
	assert.ErrorContains(t, CC().Err, "no-such-compiler")
}
