package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/internal/replace"
)

// The table of frozen names keeps what each plain name was first published
// for, a line "name target" each, sorted. The target of a type may be spelled
// with its keyword: "cudaError_t enum cudaError".

const frozenHead = "# What each plain name means, since it was first published. gen adds lines and changes none.\n"

func readFrozen(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := frozenLine.FindStringSubmatch(line)
		if m == nil || names[m[1]] != "" {
			return nil, fmt.Errorf("%s:%d: want a name and what it means, each name once: %q", file, n, line)
		}
		names[m[1]] = m[2]
	}
	return names, nil
}

var frozenLine = regexp.MustCompile(`^([\pL_][\pL\pN_$]*) ((?:(?:struct|union|enum) )?[\pL_][\pL\pN_$]*)$`)

// writeFrozen adds the names of now that the table lacks. The table is replaced whole, as nothing else tells the names.
func writeFrozen(file string, frozen, now map[string]string) error {
	if file == "" {
		return nil
	}
	all := map[string]string{}
	for _, m := range []map[string]string{now, frozen} {
		for name, target := range m {
			all[name] = target
		}
	}
	var lines []string
	for name, target := range all {
		lines = append(lines, name+" "+target+"\n")
	}
	slices.Sort(lines)
	data := []byte(frozenHead + strings.Join(lines, ""))
	mode := fs.FileMode(0o644)
	if to, err := filepath.EvalSymlinks(file); err == nil { // a link stays
		file = to
		if info, err := os.Stat(file); err == nil {
			mode = info.Mode().Perm()
		}
	}
	return replace.Files(mode, replace.File{Name: file, Data: data})
}
