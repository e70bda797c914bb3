// Command gen writes Go bindings for a CUDA API from NVIDIA's headers.
//
//	go get -tool github.com/cudabind/cudabind/gen@latest
//	go tool gen -cuda 13.5 -api driver -out . -package driver -frozen names.txt
//
// The headers of a pinned CUDA version are fetched by pip when they are not there yet;
// -headers reads an include folder instead, such as that of an installed
// toolkit. The generated package needs the standard library, the packages whose
// types it uses and, under the build tag cudabind_nocgo, purego.
//
// The work is a pipeline, a package a stage: headers are read by gen/parse into
// gen/model, completed there by names and quirks, given comments by gen/doc and
// printed by gen/emit. A declaration that no stage knows what to do with stops
// it: a callback type, since no header says on which thread CUDA calls it, or two
// that would have one name in Go. What Go cannot have, such as a function with a
// variable number of arguments, is left out and named on stderr and in the package
// comment; it stops the generator, too, where cudabind publishes a package of the
// library. The error shows the rows to keep in a file for -quirks, an array of JSON:
//
//	[
//	  {"api": "driver", "from": "13.6", "quirk": "callback", "name": "CUthingFn",
//	   "thread": "a thread of the driver's own", "go": true, "reason": "measured"},
//	  {"api": "driver", "from": "13.6", "quirk": "skip", "name": "CU_THING", "reason": "no constant"}
//	]
//
// The quirks are callback (thread is where CUDA calls it, go whether it may be a
// Go function: never where CUDA calls it inside a call), callingThread (a
// callback parameter, as function.parameter, that runs inside the call), opaque
// (a parameter or member of type void *, as function.parameter, that holds no Go
// pointer; * stands for every function), group (the chapter of a function that
// stands in none), enum (the enum that as names is the type of an integer, as
// function.parameter or record.member), skip (leave a declaration of any kind out), rename (as is the
// name in Go of a declaration of any kind, or of a member, as record.member), and
// ignore (leave out the built-in row of this name). from and to are the CUDA
// versions that a row is for. A row that matches nothing is an error.
//
// A library that the generator does not know is bound by -row, a file with its row:
// docs/upgrading.md lists the fields.
//
// With -headers, the layouts of records are compared with those of a C compiler, $CC or cc, if
// there is one; -cc names another, such as x86_64-w64-mingw32-gcc for Windows, or none. gen says
// what it has compared.
//
// gen prints on stderr what the package in -out has and the new one lacks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/token"
	"io"
	"os"
	"strings"

	"golang.org/x/mod/module"

	"github.com/cudabind/cudabind/gen/model"
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
	cuda, api, row, version, out, pkg, importPath, headers, docs, frozen, quirks, cc string

	uses map[string]string // import paths of packages that have types of other libraries, by API

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
	return build(c, stderr)
}

// build writes the package and its table of frozen names.
func build(c config, stderr io.Writer) error {
	frozen, err := readFrozen(c.frozen)
	if err != nil {
		return err
	}
	files, names, err := generate(c, frozen, stderr)
	if err != nil {
		return err
	}
	if err := losses(c.out, files, frozen, names, stderr); err != nil {
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
	fs.StringVar(&c.api, "api", "driver", "`API` to bind: "+apis())
	fs.StringVar(&c.row, "row", "", "`file` with the row of another library to bind, as JSON")
	fs.StringVar(&c.version, "version", "", "`version` of a library that does not follow CUDA's: of one on request, such as 9 of cuDNN, or of -row")
	fs.StringVar(&c.out, "out", ".", "`folder` of the package")
	fs.StringVar(&c.pkg, "package", "", "`name` of the package")
	fs.StringVar(&c.importPath, "import", "", "import `path` of the package (default: what the go.mod above -out makes of it)")
	fs.Func("uses", "`API=PATH`: take types of another library from the package at this import path, as in cusparse=example.com/user/cusparse; can be repeated", func(text string) error {
		return c.use(text)
	})
	fs.StringVar(&c.headers, "headers", "", "read this include `folder`, or several as in $PATH, instead of fetched headers")
	fs.StringVar(&c.docs, "docs", "own", "whose doc comments: own, or header for the converted text of the headers")
	fs.StringVar(&c.frozen, "frozen", "", "`file` that keeps what plain names mean; new names are added to it")
	fs.StringVar(&c.quirks, "quirks", "", "`file` of further quirks, as JSON: what the header does not say of a declaration")
	fs.StringVar(&c.cc, "cc", "", "C `compiler` to compare the layouts of records with, none for no comparison (default: $CC or cc, with -headers)")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, usageError{err}
	}
	switch {
	case fs.NArg() > 0:
		return c, usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	case c.row != "" && isSet(fs, "api"):
		return c, usageError{errors.New("-row and -api: the row names its API itself")}
	case c.row != "" && c.headers == "":
		return c, usageError{errors.New("-headers is missing: which include folder has the headers of the row?")}
	case c.row == "" && model.RowOf(c.api) == nil:
		return c, usageError{fmt.Errorf("-api %q: it is %s", c.api, apis())}
	case c.version != "" && c.row == "" && model.RowOf(c.api).Fetch == "":
		return c, usageError{fmt.Errorf("-version: %s is of a version of CUDA: give -cuda", c.api)}
	case c.cuda == "" && c.headers == "" && model.RowOf(c.api).Fetch == "":
		return c, usageError{errors.New("-cuda is missing: which CUDA version is it to be?")}
	case c.pkg == "":
		return c, usageError{errors.New("-package is missing: how is the package to be called?")}
	case !token.IsIdentifier(c.pkg):
		return c, usageError{fmt.Errorf("-package %q: that is no name for a Go package", c.pkg)}
	case c.docs != "own" && c.docs != "header":
		return c, usageError{fmt.Errorf("-docs %q: it is own or header", c.docs)}
	}
	return c, nil
}

// use adds a package that has types of another library.
func (c *config) use(text string) error {
	api, path, _ := strings.Cut(text, "=")
	if err := module.CheckImportPath(path); err != nil {
		return fmt.Errorf("give the import path of the package with the types, as API=PATH: %w", err)
	}
	if c.uses == nil {
		c.uses = map[string]string{}
	}
	c.uses[api] = path
	return nil
}

// isSet tells whether the command line has a flag.
func isSet(flags *flag.FlagSet, name string) bool {
	set := false
	flags.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}
