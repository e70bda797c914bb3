// Command apidiff shows what changed between two CUDA versions:
//
//	go run github.com/cudabind/cudabind/tools/apidiff@latest [-api API] [-json] [-html FILE] 12.4 13.0
//
// A version may also be a folder: an installed toolkit, or its include folder, as in
//
//	go run github.com/cudabind/cudabind/tools/apidiff@latest 13.5 /usr/local/cuda
//
// A library that one of the two does not have is left out, and named on stderr, unless -api asks for it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "apidiff:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "apidiff:", err)
		os.Exit(1)
	}
}

type usageError struct{ error }

type options struct {
	api, html string
	asJSON    bool
	from, to  string
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	changes, err := o.compare(stderr)
	if err != nil {
		return err
	}
	return o.write(changes, stdout)
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("apidiff", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.api, "api", "", "compare one `API`, such as driver, instead of all")
	fs.BoolVar(&o.asJSON, "json", false, "print JSON")
	fs.StringVar(&o.html, "html", "", "write a page to `FILE` instead of printing")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, usageError{err}
	}
	if fs.NArg() != 2 {
		return o, usageError{errors.New("which two versions, or folders of headers?")}
	}
	if o.api != "" && model.RowOf(o.api) == nil {
		return o, usageError{fmt.Errorf("-api %q: it is %s", o.api, strings.Join(model.APIs(), " or "))}
	}
	o.from, o.to = fs.Arg(0), fs.Arg(1)
	return o, nil
}

// compare finds the changes.
func (o options) compare(stderr io.Writer) ([]change, error) {
	ctx := context.Background()
	apis := model.APIs()
	if o.api != "" {
		apis = []string{o.api}
	}
	var all []change
	for _, api := range apis {
		from, err := o.load(ctx, o.from, api, stderr)
		if err != nil {
			return nil, err
		}
		to, err := o.load(ctx, o.to, api, stderr)
		if err != nil {
			return nil, err
		}
		switch {
		case from != nil && to != nil:
			all = append(all, diff(api, from, to)...)
		case from != nil:
			fmt.Fprintf(stderr, "apidiff: left out %s, which %s does not have\n", api, o.to)
		case to != nil:
			fmt.Fprintf(stderr, "apidiff: left out %s, which %s does not have\n", api, o.from)
		}
	}
	return all, nil
}

// load reads the facts of one side, nil if it lacks the API and -api does not ask for that.
func (o options) load(ctx context.Context, version, api string, stderr io.Writer) (facts, error) {
	f, err := load(ctx, version, api, stderr)
	if errors.Is(err, fs.ErrNotExist) && o.api == "" {
		return nil, nil
	}
	return f, err
}

func (o options) write(changes []change, stdout io.Writer) error {
	switch {
	case o.html != "":
		f, err := os.Create(o.html)
		if err != nil {
			return err
		}
		if err := writeHTML(f, o.from, o.to, changes); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	case o.asJSON:
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(changes)
	}
	return writeText(stdout, changes)
}
