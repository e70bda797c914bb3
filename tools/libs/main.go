// Command libs gets CUDA libraries for programs that run on this machine, where
// no CUDA toolkit is needed, and tells where programs find them:
//
//	go run github.com/cudabind/cudabind/tools/libs@latest get nvrtc cublas
//
// It downloads NVIDIA's own wheels by pip, checks them against pinned sums and
// unpacks the libraries below cudabind/libs in the user's cache folder. The raw
// packages look there when neither the system's loader, a CUDA toolkit nor a Python
// environment has a library. NVIDIA's licence, which is in the same folder, applies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

const usage = `usage: libs get [-version MAJOR] NAME...      download libraries for this machine's driver, or of CUDA MAJOR
       libs list                              libraries that can be had, those that are there, and where programs find them
       libs remove [-version MAJOR] NAME...   delete downloaded libraries, of all versions or of MAJOR
       libs pin -o FILE CUDA...               list the newest wheels of CUDA versions (in cudabind's own source)
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
		fmt.Fprintf(stderr, "libs: %s\n%s", bad, usage)
		return 2
	}
	fmt.Fprintf(stderr, "libs: %v\n", err)
	return 1
}

// usageError is a command line that cannot be understood.
type usageError string

func (e usageError) Error() string { return string(e) }

// run runs a command line with the pins of this source and the user's cache.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	pins, err := parsePins(embedded)
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no folder to keep libraries in: %w", err)
	}
	t := &tool{pins, filepath.Join(cache, "cudabind", "libs"), runtime.GOOS + "/" + runtime.GOARCH, driverMajor(), stdout, stderr}
	return t.run(ctx, args)
}

// tool carries out commands.
type tool struct {
	pins           []pin
	root           string // of the libraries
	system         string // as in linux/amd64
	driver         int    // the major version of CUDA that this machine's driver is of, 0 without one
	stdout, stderr io.Writer
}

// driverMajor asks the driver of this machine.
func driverMajor() int {
	var version int32
	if driver.CuDriverGetVersion(&version) != nil {
		return 0
	}
	return int(version) / 1000
}

// fitting is the newest major version of CUDA whose libraries the driver takes: it loads no machine code of a newer one.
func (t *tool) fitting() string {
	const oldest, newest = 12, 13
	if t.driver == 0 {
		return strconv.Itoa(newest)
	}
	return strconv.Itoa(min(max(t.driver, oldest), newest))
}

func (t *tool) run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError("no command")
	}
	command, args := args[0], args[1:]
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var major, out string
	switch command {
	case "get":
		flags.StringVar(&major, "version", t.fitting(), "")
	case "remove":
		flags.StringVar(&major, "version", "", "")
	case "pin":
		flags.StringVar(&out, "o", "", "")
	case "list":
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(t.stdout, usage)
		return err
	default:
		return usageError(fmt.Sprintf("unknown command %q", command))
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(t.stdout, usage)
		return err
	} else if err != nil {
		return usageError(err.Error())
	}
	switch args := flags.Args(); {
	case command == "list" && len(args) > 0:
		return usageError("list takes no arguments")
	case command == "list":
		return t.list()
	case len(args) == 0:
		return usageError(command + " what?")
	case command == "pin" && out == "":
		return usageError("pin needs -o FILE")
	case command == "pin":
		return writePins(ctx, out, args, t.stderr)
	case command == "remove":
		return t.remove(args, major)
	default:
		return t.get(ctx, args, major)
	}
}
