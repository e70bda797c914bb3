//go:build !linux

package main

import (
	"errors"
	"time"
)

// Elsewhere there is no driver that could be loaded.

func cpuTime() time.Duration { return 0 }

func threads() (int, error) { return 0, errors.ErrUnsupported }
