package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime is the time that all threads of the process have computed.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // no process can be refused this
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// threads is how many threads the process has.
func threads() (int, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nThreads:")
	count, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(count))
}
