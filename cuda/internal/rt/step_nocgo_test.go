//go:build !cgo && cudabind_nocgo && linux && (amd64 || arm64)

package rt

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSteps: which calls are made, and what ends a list.
func TestSteps(t *testing.T) {
	c, err := purego.Dlopen("libc.so.6", purego.RTLD_LAZY)
	require.NoError(t, err)
	abs, err := purego.Dlsym(c, "abs") // returns its argument, which stands for the code of an error
	require.NoError(t, err)
	const made = 7
	words := [][8]uint64{{0}, {made}}
	call := func(code int, flags uint64) step {
		return *(&step{flags: flags, result: 99}).set(abs, unsafe.Pointer(&words[min(code, 1)]), 1)
	}
	word := uint64(5)
	where := func(s step, value uint64) step { return *s.unless(&word, value) }
	test := func(value, flags uint64) step { return where(step{flags: flags, result: 42}, value) }
	for _, c := range []struct {
		name    string
		steps   []step
		code    uint64
		at      int
		results []uint64
	}{
		{"all succeed", []step{call(0, 0), call(0, 0)}, 0, 2, []uint64{0, 0}},
		{"an error ends it", []step{call(0, 0), call(1, 0), call(0, 0)}, made, 1, []uint64{0, made, 99}},
		{"after the end", []step{call(1, 0), call(0, 0), call(1, evenAfterEnd), call(0, evenAfterEnd)}, made, 0, []uint64{made, 99, made, 0}},
		{"before the end", []step{call(1, evenAfterEnd), call(0, 0)}, 0, 2, []uint64{made, 0}},
		{"any result", []step{call(1, anyResult), call(0, 0)}, 0, 2, []uint64{made, 0}},
		{"any result after the end", []step{call(1, 0), call(0, anyResult)}, made, 0, []uint64{made, 99}},
		{"skipped if equal", []step{where(call(1, 0), 5), where(call(0, 0), 6)}, 0, 2, []uint64{99, 0}},
		{"skipped unless equal", []step{where(call(0, unlessEqual), 5), where(call(1, unlessEqual), 6)}, 0, 2, []uint64{0, 99}},
		{"condition after the end", []step{call(1, 0), where(call(0, evenAfterEnd), 5), where(call(0, evenAfterEnd), 6)}, made, 0, []uint64{made, 99, 0}},
		{"tests that pass", []step{test(5, 0), test(6, unlessEqual), call(0, 0)}, 0, 3, []uint64{42, 42, 0}},
		{"a test that fails", []step{call(0, 0), test(6, 0), call(0, 0)}, 42, 1, []uint64{0, 42, 99}},
		{"the other way round", []step{test(5, unlessEqual), call(0, 0)}, 42, 0, []uint64{42, 99}},
		{"the first error counts", []step{call(1, 0), test(6, 0)}, made, 0, []uint64{made, 42}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, at := makeSteps(&c.steps[0], len(c.steps))
			assert.Equal(t, c.code, code)
			assert.Equal(t, c.at, at)
			for i := range c.steps {
				assert.Equal(t, c.results[i], c.steps[i].result, "step %d", i)
			}
		})
	}
}

// TestStepCopies: a word is copied when the steps before have been made, and not after the end.
func TestStepCopies(t *testing.T) {
	c, err := purego.Dlopen("libc.so.6", purego.RTLD_LAZY)
	require.NoError(t, err)
	abs, err := purego.Dlsym(c, "abs")
	require.NoError(t, err)
	for _, c := range []struct {
		name       string
		code, want uint64
	}{{"copied", 0, 7}, {"after the end", 5, 1}} {
		t.Run(c.name, func(t *testing.T) {
			args, from, to := [8]uint64{c.code}, uint64(7), uint64(1)
			steps := make([]step, 2)
			steps[0].set(abs, unsafe.Pointer(&args), 1)
			steps[1].copyWord(&to, &from)
			code, at := makeSteps(&steps[0], len(steps))
			assert.Equal(t, c.code, code)
			assert.Equal(t, map[bool]int{true: 0, false: 2}[code != 0], at)
			assert.Equal(t, c.want, to)
		})
	}
}

// TestStepArguments: arguments in registers and on the stack arrive.
func TestStepArguments(t *testing.T) {
	c, err := purego.Dlopen("libc.so.6", purego.RTLD_LAZY)
	require.NoError(t, err)
	print, err := purego.Dlsym(c, "snprintf")
	require.NoError(t, err)
	text, format := make([]byte, 100), []byte("%ld %ld %ld %ld %ld %ld %ld %ld\x00")
	args := struct {
		text   *byte
		size   uint64
		format *byte
		values [16]uint64
	}{&text[0], 100, &format[0], [16]uint64{1, 2, 3, 4, 5, 6, 7, 8}}
	s := (&step{flags: anyResult}).set(print, unsafe.Pointer(&args), 11)
	makeSteps(s, 1)
	assert.EqualValues(t, len("1 2 3 4 5 6 7 8"), s.result)
	assert.Equal(t, "1 2 3 4 5 6 7 8", string(text[:s.result]))
}
