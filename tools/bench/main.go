// Command bench measures what calls of packages driver and safe cost beside the
// same calls in a loop of C, on this machine's GPU:
//
//	go build -o bench ./tools/bench
//	bench [-run REGEXP] [-rounds N] [-short] [-json FILE] [-lib FILE] [-device N]
//
// The program holds its kernels and its C, so that it runs on a machine without
// Go. C and Go call the same functions of the same library in turns, for
// several rounds of some 10 ms each; what is printed is the median of the
// rounds' means, in nanoseconds for one operation. C and the raw calls have the
// context current on their thread, as programs in C do; the safe calls run on
// an ordinary goroutine, unless the row says otherwise.
//
// Times of different runs are not to be compared: machines and clocks differ.
// Their ratios in one run are.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type usageError struct{ error }

func run(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	pattern := fs.String("run", "", "measure the rows whose name matches the `regexp`, and the empty cgo call")
	rounds := fs.Int("rounds", 11, "how many rounds")
	short := fs.Bool("short", false, "3 rounds of 2 ms, to see that it works")
	jsonFile := fs.String("json", "", "write the results to `file` as well, with the minimum of the rounds")
	library := fs.String("lib", "", "driver library, or the `folder` that holds it (default: where it usually is)")
	device := fs.Int("device", 0, "ordinal of the GPU")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	wanted, err := regexp.Compile(*pattern)
	switch {
	case err != nil:
		return usageError{err}
	case fs.NArg() > 0:
		return usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	case *rounds < 1:
		return usageError{fmt.Errorf("-rounds %d: there must be one", *rounds)}
	}
	m := meter{rounds: *rounds, round: 10 * time.Millisecond}
	if *short {
		m = meter{rounds: 3, round: 2 * time.Millisecond}
	}
	if err := driver.Open(*library); err != nil {
		return err
	}
	r, err := bench(*device, m, wanted, stdout)
	if err == nil && *jsonFile != "" {
		err = r.writeFile(*jsonFile)
	}
	if err == nil && r.failed() > 0 {
		err = fmt.Errorf("%d rows failed", r.failed())
	}
	return err
}

// bench measures the rows that are wanted, and prints each when it is done.
func bench(device int, m meter, wanted *regexp.Regexp, w io.Writer) (*report, error) {
	g, err := openGPU(device)
	if err != nil {
		return nil, err
	}
	defer g.close()
	all, err := rows(g)
	if err != nil {
		return nil, err
	}
	m.current = g.ctx.Do
	r := &report{Header: g.header()}
	table := newTable(w, all)
	if err := table.begin(&r.Header); err != nil {
		return nil, err
	}
	for _, row := range all {
		if !row.always && !wanted.MatchString(row.name) {
			continue
		}
		result, err := m.measure(&row)
		if safe.IsFatal(err) {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
		r.add(result, row.targets)
		if err := table.line(result); err != nil {
			return nil, err
		}
	}
	return r, nil
}
