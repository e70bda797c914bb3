// Command cudainfo tells what CUDA this machine offers to the bindings: the
// driver and the libraries that are found, with their versions and what of them
// does not fit the driver, the devices, and how many functions of each raw package
// can be called.
//
//	go run github.com/cudabind/cudabind/tools/cudainfo@latest [-missing] [-json] [-libs FOLDER]
//
// Without a driver it says so and exits with 1.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "cudainfo:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cudainfo:", err)
		os.Exit(1)
	}
}

type usageError struct{ error }

func run(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("cudainfo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	missing := fs.Bool("missing", false, "list the functions that this machine lacks")
	asJSON := fs.Bool("json", false, "print JSON")
	library := fs.String("driver", "", "driver library, or the `folder` that holds it (default: where it usually is)")
	libs := fs.String("libs", "", "`folder` to look for the libraries in first, such as Python's site-packages")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	}
	m, err := look(*library, *libs, *missing)
	if err != nil {
		return err
	}
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(m)
	}
	return m.print(stdout)
}
