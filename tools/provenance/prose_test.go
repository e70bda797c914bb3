package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsProse(t *testing.T) {
	for word, want := range map[string]bool{
		"water": true, "Water": true, "WATER": true, "bed's": true, "a": true, "A": true, "if": true,
		"x": false, "4": false, "hBed": false, "GARDENbed": false, "bed_t": false, "BED_SIZE": false,
		"dim3": false, "McBed": false, "int": false, "NULL": false, "Unsigned": false, "é": false,
	} {
		assert.Equal(t, want, isProse([]byte(word)), word)
	}
}

func TestMostly(t *testing.T) {
	half := []bool{true, true, true, true, false, false, false, false}
	assert.False(t, mostly(half))
	half[7] = true
	assert.True(t, mostly(half))
}
