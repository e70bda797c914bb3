// Command samples shows what streams and graphs are for, by programs that check
// their own results:
//
//	go run github.com/cudabind/cudabind/examples/samples            # all of them
//	go run github.com/cudabind/cudabind/examples/samples asyncAPI
//	go run github.com/cudabind/cudabind/examples/samples -profile trace.json simpleMultiCopy
//
// Each has the name of one of NVIDIA's CUDA samples, shows what that one shows, and
// has a file here. Without a GPU, the command says so and exits with 2. -profile records a
// timeline for Perfetto, and prints its tables.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/profile"
)

// kernels is kernels.cu as PTX.
//
//go:generate nvcc -ptx -arch=compute_75 -o kernels.ptx kernels.cu
//go:embed kernels.ptx
var kernels []byte

// conditions is conditions.cu as PTX, which drivers before CUDA 12.3 cannot load.
//
//go:generate nvcc -ptx -rdc=true -arch=compute_75 -o conditions.ptx conditions.cu
//go:embed conditions.ptx
var conditions []byte

type sample struct {
	name string
	run  func(*safe.Context, *safe.Module, io.Writer) error
}

var samples = []sample{
	{"asyncAPI", asyncAPI},
	{"concurrentKernels", concurrentKernels},
	{"graphConditionalNodes", graphConditionalNodes},
	{"greenContexts", greenContexts},
	{"jacobiCudaGraphs", jacobiCudaGraphs},
	{"simpleCallback", simpleCallback},
	{"simpleCudaGraphs", simpleCudaGraphs},
	{"simpleIPC", simpleIPC},
	{"simpleMultiCopy", simpleMultiCopy},
	{"simpleOccupancy", simpleOccupancy},
	{"simpleP2P", simpleP2P},
	{"simpleStreams", simpleStreams},
	{"streamOrderedAllocation", streamOrderedAllocation},
	{"threadMigration", threadMigration},
	{"vectorAddMMAP", vectorAddMMAP},
}

func main() {
	var err error
	if os.Getenv(otherProcess) != "" {
		err = runOther(os.Stdin, os.NewFile(3, "pool"))
	} else {
		file := flag.String("profile", "", "record a timeline, and write it to this `file`")
		flag.Parse()
		err = profiled(os.Stdout, *file, flag.Args())
	}
	switch {
	case err == nil:
	case errors.As(err, new(*driver.LibraryError)), errors.Is(err, driver.CUDA_ERROR_NO_DEVICE):
		fmt.Fprintln(os.Stderr, "samples: no GPU here:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "samples:", err)
		os.Exit(1)
	}
}

func sampleNames() (names []string) {
	for _, s := range samples {
		names = append(names, s.name)
	}
	return names
}

// profiled runs samples, and writes a timeline of them to a file if that has a name.
func profiled(w io.Writer, file string, names []string) error {
	if file == "" {
		return run(w, names)
	}
	r, err := profile.Start(profile.Options{})
	if err != nil {
		return err
	}
	err = run(w, names)
	t, stopped := r.Stop()
	if err = errors.Join(err, stopped); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(t.WriteTrace(f), f.Close(), t.WriteSummary(w))
}

// run runs the samples of these names, or all of them.
func run(w io.Writer, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(samples, func(s sample) bool { return s.name == name }) {
			return fmt.Errorf("there is no sample %q, but %s", name, strings.Join(sampleNames(), ", "))
		}
	}
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer x.Close()
	module, err := safe.Load(x, kernels)
	if err != nil {
		return err
	}
	defer module.Close()
	for _, s := range samples {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		if err := s.run(x, module, w); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

// several makes n things. Also those it has made when one fails are to be closed.
func several[T io.Closer](n int, create func() (T, error)) ([]T, error) {
	var all []T
	for range n {
		v, err := create()
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

func closeAll[T io.Closer](all []T) {
	for _, v := range all {
		v.Close()
	}
}

func newStreams(x *safe.Context, n int) ([]*safe.Stream, error) {
	return several(n, func() (*safe.Stream, error) { return safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}) })
}

func newEvents(x *safe.Context, n int, o safe.EventOptions) ([]*safe.Event, error) {
	return several(n, func() (*safe.Event, error) { return safe.NewEventWith(x, o) })
}
