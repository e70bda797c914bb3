// Simdriver builds a simulated libcuda.so.1, to test programs on machines without a GPU:
//
//	go run github.com/cudabind/cudabind/tools/simdriver -o sim
//	LD_LIBRARY_PATH=sim go test ./...
//
// It is a test double: see package sim for its capabilities and limits.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "simdriver:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("simdriver", flag.ContinueOnError)
	dir := flags.String("o", "", "`directory` for libcuda.so.1")
	version := flags.String("driver", sim.Default, "CUDA `version` of the driver")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("usage: simdriver -o DIR [-driver %s]", sim.Default)
	}
	file, err := sim.Build(*dir, *version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: a simulated driver for CUDA %s\n", file, *version)
	return err
}
