package admit_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/stretchr/testify/assert"
)

// TestNap: a short nap takes less than time.Sleep does in an idle process, a millisecond.
func TestNap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("naps are exact on Linux")
	}
	var took []time.Duration
	for range 100 {
		from := time.Now()
		assert.Equal(t, 2*admit.ShortNap, admit.ShortNap.Take())
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	assert.Less(t, took[len(took)/4], 700*time.Microsecond)
	assert.GreaterOrEqual(t, took[len(took)/4], time.Duration(admit.ShortNap))
	assert.Equal(t, admit.LongNap, admit.LongNap.Take())
}
