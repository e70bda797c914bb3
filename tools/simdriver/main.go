// Simdriver builds a simulated libcuda.so.1, to test programs on machines without a GPU:
//
//	go run github.com/cudabind/cudabind/tools/simdriver -o sim
//	LD_LIBRARY_PATH=$PWD/sim go test ./...
//
// With -kernels it also compiles C functions that are kernels, for programs that launch them.
// Beside the driver it puts a double of NVRTC, so that programs compile CUDA C++ without it.
// If the environment variable CC names a C compiler of MinGW, it builds nvcuda.dll for Windows.
//
// It is a test double: see package sim for its capabilities and limits.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "simdriver:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("simdriver", flag.ContinueOnError)
	dir := flags.String("o", "", "`directory` for the driver")
	version := flags.String("driver", sim.Default, "CUDA `version` of the driver")
	nvrtc := flags.Bool("nvrtc", true, "build a double of NVRTC, too, which programs find instead of NVIDIA's")
	var kernels []string
	flags.Func("kernels", "C `file` with kernels: see sim.BuildKernels; may be repeated", func(file string) error {
		kernels = append(kernels, file)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("usage: simdriver -o DIR [-driver %s] [-kernels FILE.c] [-nvrtc=false]", sim.Default)
	}
	var said string
	for _, part := range []struct {
		wanted bool
		build  func() (string, error)
		what   string
	}{
		{len(kernels) > 0, func() (string, error) { return sim.BuildKernels(*dir, kernels...) }, "kernels for it"},
		{*nvrtc, func() (string, error) { return sim.BuildNVRTC(*dir, *version) }, "a double of NVRTC for it"},
		{true, func() (string, error) { return sim.Build(*dir, *version) }, "a simulated driver for CUDA " + *version},
	} {
		if !part.wanted {
			continue
		}
		file, err := part.build()
		if err != nil {
			return err
		}
		said = fmt.Sprintf("%s: %s\n", file, part.what) + said
	}
	_, err := io.WriteString(out, said)
	return err
}
