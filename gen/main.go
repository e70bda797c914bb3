// Command gen writes Go bindings for a CUDA API from NVIDIA's headers.
//
//	go get -tool github.com/cudabind/cudabind/gen@latest
//	go tool gen -cuda 13.5 -api driver -out . -package driver
//
// The headers of a pinned CUDA version are fetched when they are not there yet;
// -headers reads an include folder instead, such as that of an installed
// toolkit. The package that comes out depends on the standard library alone.
//
// The work is a pipeline, a package a stage: headers are read by gen/parse into
// gen/model, completed there by names and quirks, given comments by gen/doc and
// printed by gen/emit. A declaration that no stage knows what to do with stops
// it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/token"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/parse"
)

func main() {
	err := run(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

// config is the command line.
type config struct {
	cuda, api, out, pkg, importPath, headers, docs, frozen string

	partial bool // the header is only a part of NVIDIA's, as in tests
}

func run(args []string, stderr io.Writer) error {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if c.importPath == "" {
		if c.importPath, err = importPath(c.out); err != nil {
			return err
		}
	}
	frozen, err := readFrozen(c.frozen)
	if err != nil {
		return err
	}
	files, names, err := generate(c, frozen, stderr)
	if err != nil {
		return err
	}
	if err := write(c.out, files); err != nil {
		return err
	}
	return writeFrozen(c.frozen, frozen, names)
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("gen", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&c.cuda, "cuda", "", "CUDA `version`, such as 13.5")
	fs.StringVar(&c.api, "api", "driver", "`API` to bind: driver or runtime")
	fs.StringVar(&c.out, "out", ".", "`folder` of the package")
	fs.StringVar(&c.pkg, "package", "", "`name` of the package")
	fs.StringVar(&c.importPath, "import", "", "import `path` of the package (default: what the go.mod above -out makes of it)")
	fs.StringVar(&c.headers, "headers", "", "read this include `folder` instead of fetched headers")
	fs.StringVar(&c.docs, "docs", "own", "whose doc comments: own, or header for the converted text of NVIDIA's headers")
	fs.StringVar(&c.frozen, "frozen", "", "`file` that keeps what plain names mean; new names are added to it")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, usageError{err}
	}
	switch {
	case fs.NArg() > 0:
		return c, usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	case c.cuda == "" && c.headers == "":
		return c, usageError{errors.New("-cuda is missing: which CUDA version is it to be?")}
	case !slices.Contains(parse.APIs, c.api):
		return c, usageError{fmt.Errorf("-api %q: it is %s", c.api, strings.Join(parse.APIs, " or "))}
	case c.pkg == "":
		return c, usageError{errors.New("-package is missing: how is the package to be called?")}
	case !token.IsIdentifier(c.pkg):
		return c, usageError{fmt.Errorf("-package %q: that is no name for a Go package", c.pkg)}
	case c.docs != "own" && c.docs != "header":
		return c, usageError{fmt.Errorf("-docs %q: it is own or header", c.docs)}
	}
	return c, nil
}
