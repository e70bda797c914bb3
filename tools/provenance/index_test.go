package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// garden is a header in the manner of NVIDIA's, and all ours.
const garden = `
/**
 * \defgroup GARDEN_WATER Watering
 *
 * The gardener waters every bed of <b>roses</b> before the sun
 * stands over the wall. Returns ::GARDEN_ERROR_DRY if \p hBed is NULL and the seeds are wet.
 *
 * IT IS NOT ADVISED TO WATER THE BEDS AT NOON.
 *
 * \code
 * typedef struct GARDENplan_st {
 *     unsigned int width;
 *     unsigned int height;
 *     size_t depth;
 *     gardenSoil soil;
 * } GARDENplan;
 * GARDENresult gardenWater(GARDENbed hBed, const char *name, int size, unsigned int flags);
 * \endcode
 * \return
 * ::GARDEN_SUCCESS, ::GARDEN_ERROR_DRY, ::GARDEN_ERROR_WET, ::GARDEN_ERROR_FROST,
 * ::GARDEN_ERROR_SNAIL, ::GARDEN_ERROR_MOLE, ::GARDEN_ERROR_HAIL, ::GARDEN_ERROR_OTHER
 * \sa ::gardenDig, ::gardenSow, ::gardenRake, ::gardenMow, ::gardenPrune, ::gardenWeed,
 * ::gardenHarvest, ::gardenRest
 */
GARDENresult gardenWater(GARDENbed hBed, const char *name, int size, unsigned int flags);

int gardenGate; // A gate is open as long as
                // nobody has gone through and closed it
int gardenPath; // the path behind the gate
int gardenPond; // leads down to the pond
const char *gardenMotto = "/* no comment but a motto for all who work here */";
`

func gardenIndex() *index {
	x := newIndex()
	x.add(header{"12.4", "garden.h"}, []byte(garden))
	return x
}

func passages(x *index, text string) []string {
	var all []string
	for _, p := range x.find([]byte(text)) {
		all = append(all, fmt.Sprintf("%d: %s", p.line, p))
	}
	return all
}

func TestFindCopies(t *testing.T) {
	const (
		roses = `shares "The gardener waters every bed of roses before ..." with garden.h of CUDA 12.4`
		dry   = `shares "Returns GARDEN_ERROR_DRY if hBed is NULL and the ..." with garden.h of CUDA 12.4`
	)
	for _, tt := range []struct{ name, text, want string }{
		{"plain", "The gardener waters every bed of roses before the sun stands", "1: " + roses},
		{"Go comment, wrapped otherwise", "package a\n\n// Water: The gardener waters\n// every bed of roses before the sun\n// stands.\nfunc Water()", "3: " + roses},
		{"joined Go strings", "var doc = \"The gardener waters \" +\n\t\"every bed of roses \" +\n\t\"before the sun\\nstands\"", "1: " + roses},
		{"raw Go string", "var doc = `\nThe gardener waters\nevery bed of roses before the sun`", "2: " + roses},
		{"Go string with line ends", `doc("The gardener waters\nevery bed of\n\troses before the sun")`, "1: " + roses},
		{"Markdown", "# Beds\n\n> The **gardener** waters every\n> [bed](bed.md) of `roses`,\n> _before_ the sun", "3: " + roses},
		{"Markdown table", "| call | what |\n|---|---|\n| x | The gardener waters every bed of roses before the sun |", "3: " + roses},
		{"C comment", "/*\n * The gardener waters every\n * bed of roses before the sun\n */", "2: " + roses},
		{"shell comment", "#!/bin/sh\n# The gardener waters every\n# bed of roses before the sun", "2: " + roses},
		{"Doxygen", "/** \\brief The \\p gardener waters\n every ::bed of <i>roses</i> before the sun */", "1: " + roses},
		{"with carriage returns", "// The gardener waters\r\n// every bed of roses\r\n// before the sun\r\n", "1: " + roses},

		{"upper case", "THE GARDENER WATERS EVERY BED OF ROSES BEFORE",
			`1: shares "THE GARDENER WATERS EVERY BED OF ROSES BEFORE" with garden.h of CUDA 12.4`},
		{"lower case of upper case", "it is not advised to water the beds at noon",
			`1: shares "it is not advised to water the beds ..." with garden.h of CUDA 12.4`},
		{"identifiers inside", "// Returns [GARDEN_ERROR_DRY] if hBed is NULL and the seeds are wet", "1: " + dry},
		{"Go names of identifiers", "// returns [Garden_Error_Dry] if HBed is null and the seeds",
			`1: shares "returns Garden_Error_Dry if HBed is null and the ..." with garden.h of CUDA 12.4`},
		{"line comments of the header", "A gate is open as long as nobody cares",
			`1: shares "A gate is open as long as nobody" with garden.h of CUDA 12.4`},
		{"end of the file", strings.Repeat("word\n", 99) + "we know: the gardener waters every bed of roses before",
			`100: shares "the gardener waters every bed of roses before" with garden.h of CUDA 12.4`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, []string{tt.want}, passages(gardenIndex(), tt.text))
		})
	}
}

func TestFindNothing(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"empty", ""},
		{"our own words", "Roses are watered by their gardener early in the morning, bed by bed."},
		{"seven words", "The gardener waters every bed of roses after lunch"},
		{"a word between", "The gardener waters every large bed of roses before the sun"},
		{"prototype", "GARDENresult gardenWater(GARDENbed hBed, const char *name, int size, unsigned int flags);"},
		{"structure", "typedef struct GARDENplan_st { unsigned int width; unsigned int height; size_t depth; gardenSoil soil; } GARDENplan;"},
		{"constants", "GARDEN_SUCCESS, GARDEN_ERROR_DRY, GARDEN_ERROR_WET, GARDEN_ERROR_FROST,\nGARDEN_ERROR_SNAIL, GARDEN_ERROR_MOLE, GARDEN_ERROR_HAIL, GARDEN_ERROR_OTHER"},
		{"identifiers", "// See also [GardenDig], [GardenSow], [GardenRake], [GardenMow], [GardenPrune], [GardenWeed], [GardenHarvest], [GardenRest]."},
		{"words of two comments", "the path behind the gate leads down to the pond"},
		{"string of the header", "no comment but a motto for all who work here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Empty(t, passages(gardenIndex(), tt.text))
		})
	}
}

// quoted is a string of C, which may be a sentence: that of a deprecation.
var quoted = regexp.MustCompile(`"[^"\n]*"`)

// codeOf returns C source without its comments and strings.
func codeOf(source []byte) []byte {
	var code []byte
	for c := range comments(source) {
		before, after, _ := bytes.Cut(source, c)
		code = append(append(code, before...), '\n')
		source = after
	}
	return quoted.ReplaceAll(append(code, source...), []byte(`""`))
}

// What a header declares is facts: all of it may be repeated.
func TestFindNothingInCode(t *testing.T) {
	code := codeOf([]byte(garden))
	require.Contains(t, string(code), "gardenWater")
	assert.Empty(t, gardenIndex().find(code))
}

func TestFindSeparatePassages(t *testing.T) {
	text := "The gardener waters every bed of roses before the sun.\n" +
		"Something else.\n" +
		"It is not advised to water the beds at noon."
	assert.Equal(t, []string{
		`1: shares "The gardener waters every bed of roses before ..." with garden.h of CUDA 12.4`,
		`3: shares "It is not advised to water the beds ..." with garden.h of CUDA 12.4`,
	}, passages(gardenIndex(), text))
}

// Two runs that touch but do not overlap are two passages.
func TestFindAdjacentPassages(t *testing.T) {
	x := newIndex()
	x.add(header{"12.4", "a.h"}, []byte("// one fine day the old gardener went out"))
	x.add(header{"12.5", "b.h"}, []byte("// and never came back to his own garden"))
	assert.Equal(t, []string{
		`1: shares "one fine day the old gardener went out" with a.h of CUDA 12.4`,
		`1: shares "and never came back to his own garden" with b.h of CUDA 12.5`,
	}, passages(x, "one fine day the old gardener went out and never came back to his own garden"))
}

func TestAddNamesFirstHeader(t *testing.T) {
	x := gardenIndex()
	x.add(header{"12.5", "garden.h"}, []byte(garden))
	x.add(header{"12.6", "other.h"}, []byte("/* but the gardener waters every bed of roses before dawn */"))
	assert.Len(t, x.headers, 3)
	assert.Equal(t, []string{
		`1: shares "the gardener waters every bed of roses before ..." with garden.h of CUDA 12.4`,
	}, passages(x, "the gardener waters every bed of roses before dawn"))
}

func TestAllow(t *testing.T) {
	const sentence = "The gardener waters every bed of roses before the sun stands over the wall"

	t.Run("lets the phrase through, however it is written", func(t *testing.T) {
		x := gardenIndex()
		require.NoError(t, x.allow([]allowance{{"the GARDENER waters every bed of roses, before the sun stands over the wall", "a test"}}))
		assert.Empty(t, x.find([]byte(sentence)))
	})
	t.Run("not what stands around it", func(t *testing.T) {
		x := gardenIndex()
		require.NoError(t, x.allow([]allowance{{"every bed of roses before the sun stands", "a test"}}))
		assert.Equal(t, []string{
			`1: shares "The gardener waters every bed of roses before ..." with garden.h of CUDA 12.4`,
		}, passages(x, sentence))
	})
	t.Run("stale ones are errors", func(t *testing.T) {
		err := gardenIndex().allow([]allowance{
			{"every bed of roses before the sun stands", "a test"},
			{"nothing of this is found in a header", "a test"},
			{"too short to allow anything", "a test"},
		})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "roses")
		assert.ErrorContains(t, err, `stale allowance, no header says "nothing of this is found in a header"`)
		assert.ErrorContains(t, err, `no header says "too short to allow anything"`)
	})
}

func TestAllowancesHaveReasons(t *testing.T) {
	for _, a := range allowances {
		assert.NotEmpty(t, a.reason, a.phrase)
	}
}
