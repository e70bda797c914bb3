//lint:file-ignore SA1019 CUPTI of CUDA 13.5 has no other clock

package programs

import (
	"time"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
)

// ClockRate returns how fast CUPTI's clock runs, measured against Go's for some time.
func ClockRate(during time.Duration) (float64, error) {
	var first, last uint64
	begin := time.Now()
	if err := cupti.CuptiGetTimestamp(&first); err != nil {
		return 0, err
	}
	time.Sleep(during)
	if err := cupti.CuptiGetTimestamp(&last); err != nil {
		return 0, err
	}
	return float64(last-first) / float64(time.Since(begin)), nil
}
