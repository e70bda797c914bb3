package headers

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

// instead says how to do without pip.
const instead = "take the headers of an installed toolkit (fetch -from DIR VERSION)"

// wheel is a package as pip downloads it.
type wheel struct {
	name string // of the file
	data []byte
}

// download lets pip download the wheel of a requirement that fits one of the
// platforms.
func download(ctx context.Context, requirement string, platforms ...string) (wheel, error) {
	python, err := findPython()
	if err != nil {
		return wheel{}, err
	}
	tmp, err := os.MkdirTemp("", "cudabind-*")
	if err != nil {
		return wheel{}, err
	}
	defer os.RemoveAll(tmp)
	if err := runPip(ctx, python, tmp, requirement, platforms); err != nil {
		return wheel{}, err
	}
	return onlyWheel(tmp, requirement)
}

func runPip(ctx context.Context, python, dest, requirement string, platforms []string) error {
	args := []string{"-m", "pip", "download", "--no-deps", "--only-binary=:all:",
		"--disable-pip-version-check", "--no-input", "--quiet"}
	for _, p := range platforms {
		args = append(args, "--platform", p)
	}
	args = append(args, "--dest", dest, requirement)

	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Stderr = &stderr
	// Interrupted, pip removes its own temporary files. Where it cannot be, or
	// does not end, it is killed after the delay.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		return pipError(ctx, requirement, python, stderr.String(), err)
	}
	return nil
}

func findPython() (string, error) {
	names := []string{"python3", "python"}
	if runtime.GOOS == "windows" { // where python3 may be a mere pointer to a shop
		names = []string{"py", "python", "python3"}
	}
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", errors.New("there is no python3 in PATH, whose pip downloads the headers: install Python 3 with pip, or " + instead)
}

// pipError says why pip failed, in pip's own last words.
func pipError(ctx context.Context, requirement, python, stderr string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("download of %s: %w", requirement, ctx.Err())
	}
	if strings.Contains(stderr, "No module named pip") {
		return fmt.Errorf("%s has no pip: install it, or %s", python, instead)
	}
	return fmt.Errorf("pip could not download %s (%w): check the network and pip's settings, or %s; pip said:\n%s",
		requirement, err, instead, lastLines(stderr, 5))
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

// onlyWheel reads the one file that pip has left in dir.
func onlyWheel(dir, requirement string) (wheel, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return wheel{}, err
	}
	if len(entries) != 1 || !strings.HasSuffix(entries[0].Name(), ".whl") {
		return wheel{}, fmt.Errorf("pip was to download one wheel for %s, it left %d files", requirement, len(entries))
	}
	name := entries[0].Name()
	data, err := os.ReadFile(filepath.Join(dir, name))
	return wheel{name, data}, err
}
