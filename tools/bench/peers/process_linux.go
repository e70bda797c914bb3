package main

import (
	"fmt"
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

// threads is how many threads a process has, 0 if it has ended.
func threads(process int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nThreads:")
	count, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(strings.TrimSpace(count))
	return n
}
