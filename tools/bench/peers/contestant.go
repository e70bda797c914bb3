package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// contestant is a program that answers as serve does.
type contestant struct {
	name   string
	ready  reply
	absent string // why it takes no part, or no longer

	command *exec.Cmd
	in      io.WriteCloser
	lines   chan []byte   // closed when it has ended
	stopped chan struct{} // closed when no line is wanted any more
	said    bytes.Buffer
}

// safeWays are the contestants that call package safe.
var safeWays = []string{"safe", "bulk", "replay"}

// tracked are the peers that count references to what the program uses, or wait for it by events. The untracked ones leave
// this to the program.
var (
	tracked   = []string{"cudarc", "core", "bindings", "cupy", "torch"}
	untracked = []string{"C", withoutTracking}
)

// foreign tells a peer from C and from our own ways.
func foreign(name string) bool {
	return name != "C" && name != "raw" && !slices.Contains(safeWays, name)
}

// place is where the contestants are.
type place struct {
	self, folder string // this program, and the one with peer-c and peer-cudarc
	python       string
	files        string // a folder with the kernels and the contestant in Python
}

// commands are all contestants with their arguments, in the order of the table.
func (p *place) commands() [][]string {
	image := filepath.Join(p.files, imageFile)
	c, cudarc := filepath.Join(p.folder, cProgram), filepath.Join(p.folder, rustProgram)
	all := [][]string{
		{"C", c, image},
		{"raw", p.self, "-contestant", "raw"},
		{"safe", p.self, "-contestant", "safe"},
		{"bulk", p.self, "-contestant", "bulk"},
		{"replay", p.self, "-contestant", "replay"},
		{"cudarc", cudarc, image},
		{withoutTracking, cudarc, image, "notrack"},
	}
	for _, name := range []string{"core", "bindings", "cupy", "torch"} {
		all = append(all, []string{name, p.python, filepath.Join(p.files, scriptFile), image, name})
	}
	return all
}

// start starts a program, and waits until it is ready.
func start(name string, command ...string) *contestant {
	c := &contestant{name: name, lines: make(chan []byte), stopped: make(chan struct{})}
	c.command = exec.Command(command[0], command[1:]...)
	c.command.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
	c.command.Stderr = &c.said
	c.command.WaitDelay = time.Second // where a program that it started lives on
	in, err := c.command.StdinPipe()
	if err != nil {
		c.absent = err.Error()
		return c
	}
	out, err := c.command.StdoutPipe()
	if err == nil {
		err = c.command.Start()
	}
	if err != nil {
		c.absent = err.Error()
		return c
	}
	c.in = in
	go func() {
		defer close(c.lines)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			select {
			case c.lines <- line:
			case <-c.stopped:
				return
			}
		}
	}()
	if c.ready = c.answer(90 * time.Second); c.ready.Ready == "" {
		c.stop(cmp.Or(c.ready.Absent, "it did not say that it is ready"))
	}
	return c
}

// do asks for an item, and returns the answer.
func (c *contestant) do(item string, arg int, ms float64) reply {
	if c.absent != "" {
		return reply{Absent: c.absent}
	}
	if _, err := fmt.Fprintf(c.in, "%s %d %g\n", item, arg, ms); err != nil {
		return c.stop(ended)
	}
	return c.answer(60 * time.Second)
}

func (c *contestant) answer(most time.Duration) (r reply) {
	select {
	case line, ok := <-c.lines:
		if !ok {
			return c.stop(ended)
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return c.stop(fmt.Sprintf("it said %.80q", line))
		}
		return r
	case <-time.After(most):
		return c.stop(fmt.Sprintf("no answer in %v", most))
	}
}

// stop ends a contestant. It takes no part any more, for that reason: if it ended by itself, with the
// last line of its errors.
func (c *contestant) stop(why string) reply {
	if c.absent == "" && c.in != nil {
		c.in.Close()
		close(c.stopped)
		_ = c.command.Process.Kill() // it may have ended
		_ = c.command.Wait()         // it was killed
		if lines := strings.Split(strings.TrimSpace(c.said.String()), "\n"); why == ended && lines[len(lines)-1] != "" {
			why += ": " + lines[len(lines)-1]
		}
		c.absent = why
	}
	return reply{Absent: c.absent}
}

// ended is why a contestant that says nothing takes no part.
const ended = "it ended"
