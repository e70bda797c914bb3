package read

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPlain tests that the names of types are those of NVRTC 13, which tells no namespaces.
func TestPlain(t *testing.T) {
	for name, want := range map[string]string{
		"Point":                             "Point",
		"_ZN3geo5PointE":                    "Point",
		"LUt_":                              "LUt_",
		"_Z2TTIN4OutTIS_IN1n1PEEE2InEE":     "TT<In>",
		"_ZN4OutTI2TTIN1n1PEEE2InE":         "In",
		"_ZN3TwoUt_E":                       "",
		"_ZN3TwoUt1_E":                      "",
		"_ZN3TwoUt1_1XE":                    "X",
		"_Z2TCILc120EE":                     "TC<(char)120>",
		"TC<'x'>":                           "TC<(char)120>",
		`TC<'\000'>`:                        "TC<(char)0>",
		`TC<'\377'>`:                        "TC<(char)-1>",
		`TC<'\''>`:                          "TC<(char)39>",
		"Map<n::Key,unsigned long,n::V<3>>": "Map<Key,unsigned long,V<3>>",
	} {
		assert.Equal(t, want, plain(name), name)
	}
}
