package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPTXVersions has what the release notes of PTX say.
func TestPTXVersions(t *testing.T) {
	for cuda, want := range map[string]int{
		"11.8": 78, "12.0": 80, "12.1": 81, "12.2": 82, "12.3": 83, "12.4": 84, "12.5": 85, "12.6": 85, "12.8": 87, "12.9": 88,
		"13.0": 90, "13.1": 91,
	} {
		assert.Equal(t, want, ptx(encode(cuda)), cuda)
	}
}
