package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"regexp"
	"strings"
)

// Quirk is a quirk of a user's, beside those of the table.
type Quirk struct {
	quirk
	pos    string // file and line
	ignore bool   // the table's row of this name is not applied
	wants  string // what a row of its kind is for, as the end of a sentence, "" where its name alone can be wrong
}

// row is a quirk as a user writes it in a file: the built-in table's data as
// JSON. What the fields mean depends on the kind of quirk.
type row struct {
	API     string `json:"api"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Quirk   string `json:"quirk"` // a key of kinds
	Name    string `json:"name"`
	Thread  string `json:"thread,omitempty"`  // callback: where CUDA calls it
	Go      bool   `json:"go,omitempty"`      // callback: it may be a Go function
	Chapter string `json:"chapter,omitempty"` // group: where the function belongs
	As      string `json:"as,omitempty"`      // rename: the name in Go; enum: the enum's name in C
	Reason  string `json:"reason"`
}

// insideCall finds texts of "thread" that say of a callback that it runs before the call returns: cgo was promised that
// none is Go code.
var insideCall = regexp.MustCompile(`(?i)calling thread|\binside\b`)

// kinds are the quirks that a file may hold.
var kinds = map[string]func(row) (do func(*API, string) bool, err error){
	"callback": func(r row) (func(*API, string) bool, error) {
		if r.Thread == "" {
			return nil, errors.New(`"thread" is missing: on which thread does CUDA call it?`)
		}
		if r.Go && insideCall.MatchString(r.Thread) {
			return nil, fmt.Errorf(`"go" is true, but a callback that runs on %s cannot be a Go function: the process would end; write it in C`, r.Thread)
		}
		return callback(r.Thread, r.Go), nil
	},
	"group": func(r row) (func(*API, string) bool, error) {
		if r.Chapter == "" {
			return nil, errors.New(`"chapter" is missing: which chapter of the header does the function belong to?`)
		}
		return group(r.Chapter), nil
	},
	"callingThread": func(row) (func(*API, string) bool, error) { return onThread(calling), nil },
	"opaque":        func(row) (func(*API, string) bool, error) { return opaque, nil },
	"skip":          func(row) (func(*API, string) bool, error) { return skip, nil },
	"rename": func(r row) (func(*API, string) bool, error) {
		if !token.IsIdentifier(r.As) || !token.IsExported(r.As) {
			return nil, errors.New(`"as" is no exported name of Go: what is the declaration to be called?`)
		}
		return rename(r.As), nil
	},
	"enum": func(r row) (func(*API, string) bool, error) {
		if r.As == "" {
			return nil, errors.New(`"as" is missing: of which enum does it hold the values?`)
		}
		return holds(r.As), nil
	},
	"ignore": func(row) (func(*API, string) bool, error) { return inTable, nil },
}

// wants says what a row of a kind is for.
var wants = map[string]string{
	"enum": "; it is for an integer that is not smaller than the enum, or points to one as large: function.parameter, " +
		"without a version in the function's name, or record.member with the keyword of a record that has no typedef; " +
		"\"as\" is an enum of this library, by its name without a keyword",
	"rename": "; a member is record.member, without a keyword",
}

// inTable tells whether the table has a row of that name, for one that says to
// ignore it.
func inTable(a *API, name string) bool {
	for _, q := range quirks {
		if q.api == a.Row.API && q.name == name {
			return true
		}
	}
	return false
}

// ReadQuirks reads a file of quirks: an array of rows in JSON. Errors name the
// file and the line at which a row begins. Beside the generator's own libraries they may be
// about the one of more.
func ReadQuirks(file string, data []byte, more ...*Row) ([]Quirk, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	line := func() int {
		rest := data[dec.InputOffset():]
		gap := len(rest) - len(bytes.TrimLeft(rest, ", \t\r\n"))
		return 1 + bytes.Count(data[:int(dec.InputOffset())+gap], []byte("\n"))
	}
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%s:%d: want an array of quirks, [{...}, ...]", file, line())
	}
	var out []Quirk
	for dec.More() {
		pos := fmt.Sprintf("%s:%d", file, line())
		var r row
		if err := dec.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w", pos, err)
		}
		q, err := r.quirk(more)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pos, err)
		}
		q.pos = pos
		out = append(out, q)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%s:%d: the array of quirks does not end: %w", file, line(), err)
	}
	if dec.More() {
		return nil, fmt.Errorf("%s:%d: something follows the array of quirks", file, line())
	}
	return out, nil
}

var versionForm = regexp.MustCompile(`^(\d+(\.\d+)+)?$`)

func (r row) quirk(more []*Row) (Quirk, error) {
	kind, known := kinds[r.Quirk]
	switch {
	case RowOf(r.API) == nil && rowIn(more, r.API) == nil:
		return Quirk{}, fmt.Errorf(`"api" is %q: it is %s`, r.API, strings.Join(APIs(), " or "))
	case !known:
		return Quirk{}, fmt.Errorf(`"quirk" is %q: it is callback, callingThread, enum, group, ignore, opaque, rename or skip`, r.Quirk)
	case r.Name == "":
		return Quirk{}, errors.New(`"name" is missing: which declaration is the quirk for?`)
	case r.Reason == "":
		return Quirk{}, fmt.Errorf(`%s: "reason" is missing: why is the quirk needed?`, r.Name)
	case !versionForm.MatchString(r.From) || !versionForm.MatchString(r.To):
		return Quirk{}, fmt.Errorf(`%s: "from" and "to" are versions such as 13.5, or left out`, r.Name)
	}
	do, err := kind(r)
	if err != nil {
		return Quirk{}, fmt.Errorf("%s: %w", r.Name, err)
	}
	return Quirk{quirk: quirk{r.API, r.From, r.To, r.Name, do, r.Reason}, ignore: r.Quirk == "ignore", wants: wants[r.Quirk]}, nil
}

// advice shows rows ready to be kept in a file.
func advice(rows []row) error {
	var lines []string
	for _, r := range rows {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		lines = append(lines, "  "+string(text))
	}
	return fmt.Errorf("to go on, check these rows and keep them in a file for -quirks:\n[\n%s\n]", strings.Join(lines, ",\n"))
}
