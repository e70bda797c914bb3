// Headers fetches the CUDA headers that the bindings are generated from, and
// keeps the list of them.
//
//	headers fetch VERSION...            get them by pip, check, print the folders
//	headers fetch all                   every known version
//	headers fetch requested             those of the libraries that are bound on request
//	headers fetch -from DIR VERSION     take them from an installed toolkit
//	headers list                        known versions, and which are there
//	headers add VERSION...              pin the newest patch of a version and of its libraries
//	headers request VERSION...          pin the libraries that are bound on request
//
// They are kept in $CUDABIND_HEADERS, else in the user's cache folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

const usage = `usage: headers fetch VERSION...          get them by pip, check, print the folders
       headers fetch all                 every known version
       headers fetch requested           those of the libraries that are bound on request
       headers fetch -from DIR VERSION   take them from an installed toolkit
       headers list                      known versions, and which are there
       headers add VERSION...            pin the newest patch of a version and its libraries (in cudabind's own source)
       headers request VERSION...        pin the libraries that are bound on request (in cudabind's own source)
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(report(err, os.Stderr))
}

// report prints err and returns the exit status.
func report(err error, stderr io.Writer) int {
	switch bad := (usageError)(""); {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &bad):
		fmt.Fprintf(stderr, "headers: %s\n%s", bad, usage)
		return 2
	}
	fmt.Fprintf(stderr, "headers: %v\n", err)
	return 1
}

// usageError is a command line that cannot be understood.
type usageError string

func (e usageError) Error() string { return string(e) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usageError("no command")
	}
	switch name, args := args[0], args[1:]; name {
	case "fetch":
		return fetch(ctx, args, stdout, stderr)
	case "list":
		return list(args, stdout)
	case "add":
		return add(ctx, args, stdout, stderr)
	case "request":
		return request(ctx, args, stdout, stderr)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	default:
		return usageError(fmt.Sprintf("unknown command %q", name))
	}
}

// parseArgs reads the flags of a command and returns its other arguments.
func parseArgs(flags *flag.FlagSet, args []string, stdout io.Writer) ([]string, error) {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return nil, err
	}
	if err != nil {
		return nil, usageError(err.Error())
	}
	return flags.Args(), nil
}
