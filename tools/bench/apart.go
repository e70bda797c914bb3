package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
)

// measureIn measures a group here if that is all that this process does, and else
// in a process of its own: Go keeps the threads that others have needed. It fails
// where there is nothing more to measure.
func (p *group) measureIn(g *gpu, e effort, alone bool, o *options, stderr io.Writer) (*grouped, error) {
	if !alone {
		return p.apart(o, stderr)
	}
	result, err := p.measure(g, e)
	if safe.IsFatal(err) {
		return nil, err
	}
	return result, nil
}

// apart has this program measure the group in another process.
func (p *group) apart(o *options, stderr io.Writer) (*grouped, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "results.json")
	cmd := command.Built(self, "-group", "^"+regexp.QuoteMeta(p.name)+"$", "-json", file,
		"-lib", o.library, "-device", strconv.Itoa(o.device), "-rounds", strconv.Itoa(o.rounds), "-short="+strconv.FormatBool(o.short))
	cmd.Stderr = stderr
	failed := cmd.Run()
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, cmp.Or(failed, err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil || len(r.Groups) != 1 {
		return nil, fmt.Errorf("%s: %w", file, cmp.Or(err, errors.New("not one group")))
	}
	result := r.Groups[0]
	result.plot, result.unsupported = p.plot, result.Error != "" && failed == nil
	return result, nil
}
