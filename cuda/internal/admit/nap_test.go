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
	quarter := func() time.Duration { // of 100 naps takes less than this
		var took []time.Duration
		for range 100 {
			from := time.Now()
			assert.Equal(t, 2*admit.ShortNap, admit.ShortNap.Take())
			took = append(took, time.Since(from))
		}
		slices.Sort(took)
		return took[len(took)/4]
	}
	const short = 700 * time.Microsecond
	least := quarter()
	for tries := 0; least >= short && tries < 10; tries++ { // a busy machine may wake late for a while
		least = min(least, quarter())
	}
	assert.Less(t, least, short)
	assert.GreaterOrEqual(t, least, time.Duration(admit.ShortNap))
	assert.Equal(t, admit.LongNap, admit.LongNap.Take())
}
