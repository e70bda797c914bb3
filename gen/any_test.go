package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anyProgram calls what is bound of testdata/any.
const anyProgram = `package main

import (
	"fmt"
	"os"
	"unsafe"

	"example.com/user/any"
)

func main() {
	fmt.Println(any.Open(os.Args[1]))
	last := any.AnyNode_st{Color: any.ANY_BLUE}
	fmt.Println(any.AnyLength(&any.AnyNode_st{Next: &last}))
	fmt.Println(any.AnyTwice(any.ANY_WIDE))
	packed := any.AnyPacked{A: any.ANY_BYTES, B: any.ANY_SHORT, C: any.ANY_IN, D: 5}
	packed.SetBits(any.ANY_BYTE)
	fmt.Println(any.AnyPackedOf(any.ANY_SHORT, any.ANY_BYTE, packed, 6))
	text := make([]byte, 8)
	(*any.AnyText)(unsafe.Pointer(&text[0])).N = 4
	copy(text[unsafe.Sizeof(any.AnyText{}):], "\x01\x02\x03\x04")
	fmt.Println(any.AnySum((*any.AnyText)(unsafe.Pointer(&text[0]))))

	fmt.Println(any.AnyRowSum(&any.AnyRow{{A: 5}, {A: 6}}))
	next, err := any.AnyPick(1)
	fmt.Println(next != 0, err)
	fmt.Println(any.AnyApply(next, 41))
	var table any.AnyTable
	fmt.Println(any.AnyFill(&table), table.Entry[0] == next, table.Entry[1] == uintptr(table.Last))

	fmt.Println(any.AnyRel(&any.Elf64_Rel{A: 13}))
	fmt.Println(any.AnyRelOf(any.Elf64_Rel{A: 14}))
	fmt.Println(any.AnySeconds(any.Timeval{Tv_sec: 15}))
	fmt.Println(any.AnyTable_last(1))
	nest := any.AnyNest{Run: any.AnyNest_run_(next)}
	nest.Part.In.A = 5
	fmt.Println(any.AnyNest_part(&nest))
	fmt.Println(any.AnyNest_run())
	fmt.Println(any.AnyCount())
	fmt.Println(any.AnyRatio)
	fmt.Println(any.AnySquare(unsafe.Pointer(new([2]uint64))))
	odd, err := any.AnyOddOf(9)
	fmt.Println(err)
	fmt.Println(any.AnyOddGet(odd))
	fmt.Println(any.AnyPairGet(nil))
	fmt.Println(any.AnyUse(0))
	fmt.Println(any.AnyYear(nil))
	fmt.Println(any.AnySelect(nil))
	fmt.Println(any.AnyMacro(2))
	fmt.Println(any.AnyMarked(2))
	fmt.Println(any.AnyThing(any.Thing(2)))
	fmt.Println(any.AnyHide(nil, 2))
}
`

const anyOutput = `<nil>
12 <nil>
AnyWide(156374987060) <nil>
ANY_BYTE <nil>
10 <nil>
11 <nil>
true <nil>
42 <nil>
<nil> true true
13 <nil>
14 <nil>
15 <nil>
3 <nil>
6 <nil>
4 <nil>
7 <nil>
0.25
<nil>
<nil>
9 <nil>
1 <nil>
1 <nil>
1 <nil>
1 <nil>
6 <nil>
8 <nil>
10 <nil>
12 <nil>
`

// anyLeftOut is what gen says of testdata/any.
const anyLeftOut = `gen: left out, as they are no constants: ANY_EXPORT
gen: left out: anyName: it is an array without a length
gen: left out: anyNoTable: a variable that the header defines
gen: left out: anyRoot: its result: no type of Go is like long double
gen: left out: struct anyOdd, struct anyPair: an attribute of a layout inside of *__attribute__((aligned(32))) p
gen: left out: anyPrint, anyPrintList, anyPrinter: it takes a variable number of arguments
gen: left out: anyDay: its parameter t: it is of type struct tm, whose layout is not known
gen: left out: anyText.text: a member without a size
gen: left out: anyOddTake: it passes struct anyOdd by value, which is not bound
`

// TestAnyHeader binds a library whose header has what Go cannot have, and calls the rest.
func TestAnyHeader(t *testing.T) {
	dir := userModule(t, map[string]string{"main.go": anyProgram})
	library := cLibrary(t, "testdata/any/any.c")
	args := []string{"-row", "testdata/any/any.json", "-headers", "testdata/any", "-out", filepath.Join(dir, "any"), "-package", "any"}
	err := run(args, new(bytes.Buffer))
	require.ErrorContains(t, err, `"quirk":"rename","name":"AnyThing","as":"AnyThing_"`)

	var notice bytes.Buffer
	require.NoError(t, run(append(args, "-quirks", "testdata/any/quirks.json"), &notice))
	assert.Contains(t, notice.String(), anyLeftOut)
	assert.Regexp(t, `gen: all \d+ sizes, alignments and places`, notice.String())
	text := strings.ReplaceAll(string(contents(t, filepath.Join(dir, "any"))["zdoc.go"]), "\n// ", " ")
	assert.Contains(t, text, "anyPrint, anyPrintList, anyPrinter: it takes a variable")
	assert.NotContains(t, text, "every function that its library")
	assert.Equal(t, anyOutput, runs(t, dir, library))
}
