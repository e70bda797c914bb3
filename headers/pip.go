package headers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// instead says how to do without pip.
const instead = "take the headers of an installed toolkit (fetch -from DIR VERSION)"

// wheel is the file of a package.
type wheel struct {
	name   string
	sha256 string // of the whole file: computed from it, or as the package index states it
	whole  bool   // downloaded, so that sha256 was computed
	size   int64
	io.ReaderAt
}

// open reads a wheel in parts, if its link is good for that. If not, pip
// downloads the wheel that fits the requirement and one of the platforms.
func open(ctx context.Context, at link, progress io.Writer, requirement string, platforms ...string) (wheel, error) {
	r, err := openRemote(ctx, at.url)
	if err == nil {
		return wheel{at.name(), at.sha256, false, r.size, r}, nil
	}
	if !errors.Is(err, errNoRanges) {
		return wheel{}, fmt.Errorf("%s: %w", at.name(), err)
	}
	say(progress, "%s: downloading the whole package", requirement)
	return download(ctx, requirement, platforms...)
}

// download lets pip download the wheel of a requirement that fits one of the
// platforms.
func download(ctx context.Context, requirement string, platforms ...string) (wheel, error) {
	tmp, err := os.MkdirTemp("", "cudabind-*")
	if err != nil {
		return wheel{}, err
	}
	defer os.RemoveAll(tmp)
	args := []string{"download", "--dest", tmp}
	if err := runPip(ctx, args, platforms, requirement); err != nil {
		return wheel{}, err
	}
	return onlyWheel(tmp, requirement)
}

// runPip runs a command of pip for requirements that are wheels.
func runPip(ctx context.Context, args, platforms []string, requirements ...string) error {
	python, err := findPython()
	if err != nil {
		return err
	}
	args = append([]string{"-m", "pip"}, args...)
	args = append(args, "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--quiet")
	for _, p := range platforms {
		args = append(args, "--platform", p)
	}
	args = append(args, requirements...)

	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Stderr = &stderr
	// Interrupted, pip removes its own temporary files. Where it cannot be, or
	// does not end, it is killed after the delay.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		return pipError(ctx, strings.Join(requirements, " "), python, stderr.String(), err)
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

// errNotPublished is the error for a package that the index does not have.
var errNotPublished = errors.New("there is no such package")

// pipError says why pip failed, in pip's own last words.
func pipError(ctx context.Context, requirement, python, stderr string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("download of %s: %w", requirement, ctx.Err())
	}
	if strings.Contains(stderr, "No module named pip") {
		return fmt.Errorf("%s has no pip: install it, or %s", python, instead)
	}
	if strings.Contains(stderr, "No matching distribution found") {
		err = errNotPublished
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
	return wheel{name, sum(data), true, int64(len(data)), bytes.NewReader(data)}, err
}
