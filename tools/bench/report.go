package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// report is what a run found.
type report struct {
	Header header     `json:"header"`
	Rows   []*result  `json:"rows,omitempty"`
	Groups []*grouped `json:"groups,omitempty"`
	cgo    float64    // ns of the empty cgo call
}

// header says where and when.
type header struct {
	GPU     string `json:"gpu"`
	Driver  string `json:"driver"` // version of the kernel module, "" where the system does not tell
	CUDA    string `json:"cuda"`
	Library string `json:"library"`
	CPUs    int    `json:"cpus"`
	Go      string `json:"go"`
	Date    string `json:"date"`
}

// version names the driver, by its own version where the system tells it.
func (h *header) version() string {
	if h.Driver == "" {
		return "CUDA " + h.CUDA
	}
	return "driver " + h.Driver + ", CUDA " + h.CUDA
}

// result is what was measured of a row.
type result struct {
	Name    string    `json:"name"`
	Bytes   int       `json:"bytes,omitempty"` // that an operation copies
	C       *figures  `json:"c,omitempty"`
	Raw     *figures  `json:"raw,omitempty"`
	Safe    *figures  `json:"safe,omitempty"`
	Targets []verdict `json:"targets,omitempty"`
	Error   string    `json:"error,omitempty"`

	unsupported bool
}

// figures are of one way of doing an operation.
type figures struct {
	Median     float64 `json:"medianNs"` // of the rounds' means
	Min        float64 `json:"minNs"`
	Operations int     `json:"operations"` // in each round
	Allocs     float64 `json:"allocs"`     // for each operation, not counted in C
}

// add takes a result in and compares it with its targets.
func (r *report) add(result *result, targets []target) {
	if result.Name == emptyCall && result.Raw != nil {
		r.cgo = result.Raw.Median
	}
	if result.Error == "" {
		for _, t := range targets {
			result.Targets = append(result.Targets, verdict{Target: t.text, Met: t.met(result, r.cgo)})
		}
	}
	r.Rows = append(r.Rows, result)
}

// failed counts the rows and groups that failed, without those that this machine
// cannot do.
func (r *report) failed() int {
	n := 0
	for _, row := range r.Rows {
		if row.Error != "" && !row.unsupported {
			n++
		}
	}
	for _, p := range r.Groups {
		if p.Error != "" && !p.unsupported {
			n++
		}
	}
	return n
}

func unsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, driver.CUDA_ERROR_NOT_SUPPORTED)
}

func (r *report) writeFile(name string) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "\t")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o666)
}
