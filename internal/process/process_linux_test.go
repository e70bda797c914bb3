package process

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCPUTime(t *testing.T) {
	start := CPUTime()
	for CPUTime() == start {
	}
	assert.Greater(t, CPUTime(), start)
}
