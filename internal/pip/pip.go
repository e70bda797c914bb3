// Package pip gets NVIDIA's wheels by the user's pip, with its settings: index,
// proxy and cache.
package pip

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Client runs pip. Its texts are for errors.
type Client struct {
	What    string // it downloads, as in "the headers"
	Instead string // how to do without pip
}

// ErrNotPublished is the error for a package that the index does not have.
var ErrNotPublished = errors.New("there is no such package")

// ErrNoConnection is the error where pip does not reach the index.
var ErrNoConnection = errors.New("there is no connection")

// Missing is the error where there is no Python, or none with pip.
type Missing string

func (m Missing) Error() string { return string(m) }

// Check tells whether there is a Python, which may still lack pip.
func (c Client) Check() error {
	_, err := c.findPython()
	return err
}

// Download gets the wheel of a requirement that fits one of the platforms. dir is
// an empty folder; file is the wheel's name in it.
func (c Client) Download(ctx context.Context, dir string, platforms []string, requirement string) (file string, err error) {
	if err := c.run(ctx, once, []string{"download", "--dest", dir, "--no-deps"}, platforms, requirement); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) != 1 || !strings.HasSuffix(entries[0].Name(), ".whl") {
		return "", fmt.Errorf("pip was to download one wheel for %s, it left %d files", requirement, len(entries))
	}
	return filepath.Join(dir, entries[0].Name()), nil
}

// start begins the programs that Python runs. Python imports modules from the folder in which it
// starts, so that is an empty one, and the program leaves it for the user's, where relative paths of
// pip's settings lead to. Python 3.11 could be told (-P), but not older ones, and -I would hide a pip
// that the user has installed for himself.
const start = `
import os, sys
sys.path = [p for p in sys.path if p not in ("", os.getcwd())]
import runpy
os.chdir(sys.argv[1])
args = sys.argv[2:]
`

// once runs one command of pip.
const once = start + `
sys.argv = ["pip", *args]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
`

// run lets Python run a program with a command of pip, for requirements that are wheels.
func (c Client) run(ctx context.Context, program string, args, platforms []string, requirements ...string) error {
	python, err := c.findPython()
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	empty, err := os.MkdirTemp("", "cudabind-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(empty)
	args = append([]string{"-c", program, here}, args...)
	args = append(args, "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--quiet")
	for _, p := range platforms {
		args = append(args, "--platform", p)
	}
	args = append(args, requirements...)

	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Dir = empty
	cmd.Stderr = &stderr
	// Interrupted, pip removes its own temporary files. Where it cannot be, or
	// does not end, it is killed after the delay.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		return c.failure(ctx, strings.Join(requirements, " "), python, stderr.String(), err)
	}
	return nil
}

func (c Client) findPython() (string, error) {
	names := []string{"python3", "python"}
	if runtime.GOOS == "windows" { // where python3 may be a mere pointer to a shop
		names = []string{"py", "python", "python3"}
	}
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", Missing(fmt.Sprintf("there is no python3 in PATH, whose pip downloads %s: install Python 3 with pip, or %s", c.What, c.Instead))
}

// failure says why pip failed, in pip's own last words.
func (c Client) failure(ctx context.Context, requirement, python, stderr string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("download of %s: %w", requirement, ctx.Err())
	}
	if strings.Contains(stderr, "No module named pip") {
		return Missing(fmt.Sprintf("%s has no pip: install it, or %s", python, c.Instead))
	}
	switch {
	case strings.Contains(stderr, "after connection broken by"): // pip then finds no package, either
		err = ErrNoConnection
	case strings.Contains(stderr, "No matching distribution found"):
		err = ErrNotPublished
	}
	return fmt.Errorf("pip could not download %s (%w): check the network and pip's settings, or %s; pip said:\n%s",
		requirement, err, c.Instead, lastLines(stderr, 5))
}

// lastLines is the end of a text, indented, long lines cut.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		lines[i] = fmt.Sprintf("\t%.200s", strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
