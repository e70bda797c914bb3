package parse

import (
	"regexp"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// TestOnly: a row binds a part of its headers, with the types that the part uses and nothing else.
func TestOnly(t *testing.T) {
	row := &model.Row{
		API: "thing", Headers: []string{"thing.h"}, Own: []string{"thing.h"}, Prefix: "thing", Release: "1",
		Only: regexp.MustCompile(`^(thingUse|thingRecord|THING_SIZE|THING_ONE)$`),
	}
	a, err := Row(fstest.MapFS{"thing.h": {Data: []byte(`
#define THING_SIZE 7
#define THING_OTHER 8
enum { THING_ONE = 1, THING_TWO };
typedef enum { KIND_A, KIND_B } thingKind;
typedef enum { UNUSED_A } thingUnused;
typedef struct { thingKind kind; } thingInner;
typedef struct { thingInner inner; } thingRecord;
typedef struct { int x; } thingPlain;
int thingUse(thingKind kind);
int thingLeft(thingPlain *p);
int thingVariable(int x, ...);
`)}}, row)
	require.NoError(t, err)
	var names []string
	for _, f := range a.Funcs {
		names = append(names, f.Symbol)
	}
	for _, d := range a.Decls {
		names = append(names, d.C)
	}
	for _, c := range a.Consts {
		names = append(names, c.C)
	}
	assert.ElementsMatch(t, []string{"thingUse", "thingKind", "thingInner", "thingRecord", "THING_SIZE", "THING_ONE"}, names)
	assert.Empty(t, a.Unbound)
}
