//go:build !linux

// Package process measures what a process takes. On systems other than Linux, it measures nothing.
package process

import (
	"errors"
	"time"
)

// CPUTime returns 0.
func CPUTime() time.Duration { return 0 }

// Threads returns an error that matches errors.ErrUnsupported.
func Threads(int) (int, error) { return 0, errors.ErrUnsupported }
