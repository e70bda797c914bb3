package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
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
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case (len(fields) == 2 || len(fields) == 3 && isTag(fields[1])) && names[fields[0]] == "":
			names[fields[0]] = strings.Join(fields[1:], " ")
		default:
			return nil, fmt.Errorf("%s:%d: want a name and what it means, each name once: %q", file, n, strings.TrimSpace(line))
		}
	}
	return names, nil
}

func isTag(word string) bool { return word == "struct" || word == "union" || word == "enum" }

// writeFrozen adds the names of now that the table lacks.
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
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return os.WriteFile(file, data, 0o666)
}
