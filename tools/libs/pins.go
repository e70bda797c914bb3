package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed pins.json
var embedded []byte

// pin is a library of a version of CUDA: the wheel that it is taken from.
type pin struct {
	Name    string          `json:"name"` // as in "nvrtc"
	CUDA    string          `json:"cuda"` // as in "13.5"
	Wheel   string          `json:"wheel"`
	Version string          `json:"version"`         // of the wheel
	Needs   []string        `json:"needs,omitempty"` // libraries that it opens from its own folder
	Files   map[string]file `json:"files"`           // by system, as in linux/amd64
}

// file is a wheel's file.
type file struct {
	Platform string `json:"platform"` // the tag to ask pip for
	MB       int    `json:"mb"`
	SHA256   string `json:"sha256"`
}

func (p pin) major() string {
	major, _, _ := strings.Cut(p.CUDA, ".")
	return major
}

// folder is the name of the folder below that of all its versions.
// The major version of CUDA belongs to it: NCCL's version does not tell it.
func (p pin) folder() string { return p.Version + "+cu" + p.major() }

func (t *tool) dir(p pin) string { return filepath.Join(t.root, p.Name, p.folder()) }

// The patterns are strict since their values become arguments of pip and names of
// files.
var (
	namePattern     = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	numberPattern   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)
	wheelPattern    = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	platformPattern = regexp.MustCompile(`^[a-z0-9_]+$`)
	sumPattern      = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// parsePins reads and validates pins.
func parsePins(data []byte) ([]pin, error) {
	var pins []pin
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&pins); err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	for _, p := range pins {
		ok := namePattern.MatchString(p.Name) && numberPattern.MatchString(p.CUDA) &&
			wheelPattern.MatchString(p.Wheel) && numberPattern.MatchString(p.Version) && len(p.Files) > 0
		for _, f := range p.Files {
			ok = ok && platformPattern.MatchString(f.Platform) && sumPattern.MatchString(f.SHA256)
		}
		for _, need := range p.Needs {
			_, err := find(pins, need, p.major())
			ok = ok && err == nil && need != p.Name
		}
		if !ok {
			return nil, fmt.Errorf("pins: entry %s of CUDA %s is not valid", p.Name, p.CUDA)
		}
	}
	return pins, nil
}

// find returns the pin of a library for a major version of CUDA.
func find(pins []pin, name, major string) (pin, error) {
	var names, majors []string
	for _, p := range pins {
		if p.Name == name && p.major() == major {
			return p, nil
		}
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
		if p.Name == name {
			majors = append(majors, p.major())
		}
	}
	if majors == nil {
		return pin{}, fmt.Errorf("unknown library %q; known are %s", name, strings.Join(names, ", "))
	}
	return pin{}, fmt.Errorf("there is no %s of CUDA %q; known are %s", name, major, strings.Join(majors, ", "))
}
