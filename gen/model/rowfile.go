package model

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// requestedRows are the libraries that are bound on request, in the form that -row reads.
//
//go:embed requested.json
var requestedRows []byte

// Requested are the libraries that are bound on request: no package of theirs is published.
var Requested = sync.OnceValue(func() []*Row {
	rows, err := readRequested(requestedRows)
	if err != nil {
		panic(err) // the rows are embedded above
	}
	return rows
})

func readRequested(data []byte) ([]*Row, error) {
	var texts []json.RawMessage
	if err := json.Unmarshal(data, &texts); err != nil {
		return nil, err
	}
	var rows []*Row
	for _, text := range texts {
		r, err := decodeRow(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text[:min(len(text), 30)], err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// RequestedAPIs returns the names of the libraries that are bound on request.
func RequestedAPIs() []string {
	var names []string
	for _, r := range Requested() {
		names = append(names, r.API)
	}
	return names
}

// ReadRow reads a row from a file of a user's: one object in JSON. Errors name the file.
func ReadRow(file string, data []byte) (*Row, error) {
	r, err := decodeRow(data)
	if err == nil {
		err = r.checkUses()
	}
	if err == nil && RowOf(r.API) != nil {
		err = fmt.Errorf(`"api" is %q, which the generator knows already: choose another name, or use -api %s`, r.API, r.API)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func decodeRow(data []byte) (*Row, error) {
	r := new(Row)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return nil, at(data, dec, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the row: a file holds one object, {...}")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	r.defaults()
	return r, nil
}

// at adds the line to an error of reading JSON.
func at(data []byte, dec *json.Decoder, err error) error {
	offset := dec.InputOffset()
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		offset = syntax.Offset
	} else if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		offset = wrong.Offset
	} else if field := unknownField.FindStringSubmatch(err.Error()); field != nil {
		offset = int64(bytes.Index(data, []byte(field[1])))
	}
	line := 1 + bytes.Count(data[:min(max(int(offset), 0), len(data))], []byte("\n"))
	return fmt.Errorf("line %d: %s", line, strings.TrimPrefix(err.Error(), "json: "))
}

var (
	unknownField = regexp.MustCompile(`unknown field (".*")`)
	apiForm      = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	symbolForm   = regexp.MustCompile(`^([A-Za-z_]\w*)?$`)
	loadedForm   = regexp.MustCompile(`^[\w.+/{}-]+$`)
)

// versionForms are the ways in which a library tells its version.
var versionForms = []string{"", "size", "property", "parts", "none"}

// check tells what a row lacks.
func (r *Row) check() error {
	l := r.Library
	switch {
	case !apiForm.MatchString(r.API):
		return fmt.Errorf(`"api" is %q: it is a name of small letters, digits and _`, r.API)
	case len(r.Headers) == 0:
		return errors.New(`"headers" is missing: which header declares the library?`)
	case !symbolForm.MatchString(r.Prefix) || !symbolForm.MatchString(r.Internal) || !symbolForm.MatchString(l.Version):
		return errors.New(`"prefix", "internal" and "library.version" are identifiers of C, or left out`)
	case len(l.Names) == 0:
		return errors.New(`"library.names" is missing: which file is the library, as in "libthing.so.1"?`)
	case !slices.Contains(versionForms, l.Form):
		return fmt.Errorf(`"library.form" is %q: it is size, property, parts or none, or left out`, l.Form)
	case !plain(r.Title) || !plain(l.What) || !plain(r.Release):
		return errors.New(`"title", "library.what" and "release" stand in texts of Go: without quotes, backslashes and line ends`)
	case slices.ContainsFunc(slices.Concat(r.Headers, r.Before, r.Own), func(h string) bool { return !plain(h) || strings.ContainsAny(h, "<>") }):
		return errors.New(`"headers", "before" and "own" are names as in an #include, without quotes, backslashes and line ends`)
	case len(r.Versions) > 0:
		return errors.New(`"versions" is for packages that cudabind publishes: leave it out`)
	}
	for _, text := range slices.Concat(l.Names, l.Subdirs, l.Beside, l.Windows.Names, l.Windows.Subdirs, l.Windows.Beside) {
		if !loadedForm.MatchString(strings.ReplaceAll(text, "*", "")) {
			return fmt.Errorf("%q is no name of a file", text)
		}
	}
	return nil
}

// plain tells whether a text can stand between quotes.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' })
}

// checkUses tells what uses has that the generator does not know.
func (r *Row) checkUses() error {
	for _, api := range r.Uses {
		if RowOf(api) == nil {
			return fmt.Errorf(`"uses" has %q: the generator knows %s`, api, strings.Join(append(APIs(), RequestedAPIs()...), ", "))
		}
	}
	return nil
}

// defaults fills in what the texts need.
func (r *Row) defaults() {
	r.Title = cmp.Or(r.Title, r.API)
	r.Library.What = cmp.Or(r.Library.What, r.Title)
	r.Library.Missing = cmp.Or(r.Library.Missing, "install "+r.Library.What+", name its directory in {package}.Open, or set LD_LIBRARY_PATH to the directory of "+r.Library.Names[0])
	if r.Own == nil {
		for _, h := range r.Headers {
			r.Own = append(r.Own, h[strings.LastIndexByte(h, '/')+1:])
		}
	}
}

// OfCUDA tells whether the headers of the library come with CUDA's.
func (r *Row) OfCUDA() bool { return len(r.Uses) > 0 || RowOf(r.API) != nil }
