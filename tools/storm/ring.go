//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync/atomic"
	"syscall"
)

// The log of a child is a file that is mapped into its memory, so that it survives a crash of
// the process. Each goroutine of a program has a lane in it for the latest lines it wrote.
const (
	lanes     = 64
	laneLines = 16
	lineSize  = 256
)

type ring struct {
	data []byte
	seq  atomic.Int64
}

func openRing(file string) (*ring, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := lanes * laneLines * lineSize
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return &ring{data: data}, err
}

// lane is the part of the log that one goroutine writes.
type lane struct {
	ring *ring
	data []byte
	next int
}

// lane returns a lane, cleared.
func (r *ring) lane(i int) *lane {
	size := laneLines * lineSize
	l := &lane{ring: r, data: r.data[i%lanes*size : (i%lanes+1)*size]}
	clear(l.data)
	return l
}

// write adds a line.
func (l *lane) write(format string, args ...any) {
	line := fmt.Appendf(nil, "%010d "+format, append([]any{l.ring.seq.Add(1)}, args...)...)
	to := l.data[l.next*lineSize : (l.next+1)*lineSize]
	clear(to)
	copy(to[:lineSize-1], line)
	l.next = (l.next + 1) % laneLines
}

// readRing returns the lines of a log file, the oldest first.
func readRing(file string) []string {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var lines []string
	for ; len(data) >= lineSize; data = data[lineSize:] {
		line, _, _ := bytes.Cut(data[:lineSize], []byte{0})
		if len(line) > 0 {
			lines = append(lines, string(line))
		}
	}
	sort.Strings(lines)
	return lines
}

// underWay returns the steps in lines that have begun but not ended.
func underWay(lines []string) []string {
	last := map[string]string{}
	for _, line := range lines {
		f := strings.Fields(line) // number, goroutine, step, what, kind
		if len(f) >= 5 {
			last[f[1]] = strings.Join(f[1:], " ")
		}
	}
	var steps []string
	for _, line := range last {
		if f := strings.Fields(line); f[2] == "began" {
			steps = append(steps, line)
		}
	}
	sort.Strings(steps)
	return steps
}
