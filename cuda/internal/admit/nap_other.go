//go:build !linux

package admit

import "time"

// napExactly leaves it to time.Sleep.
func napExactly(time.Duration) bool { return false }
