// Command bench measures what calls of packages driver and safe cost beside the
// same calls in a loop of C, on this machine's GPU:
//
//	go build -o bench ./tools/bench
//	bench [-run REGEXP] [-group REGEXP] [-rounds N] [-short] [-json FILE] [-plots DIR]
//		[-markdown] [-compare OLD.json] [-threshold PERCENT] [-lib FILE] [-device N]
//
// The program holds its kernels and its C, so that it runs on a machine without
// Go. C and Go call the same functions of the same library in turns, for
// several rounds of some 10 ms each; the result is the median of the
// rounds' means, in nanoseconds for one operation. C and the raw calls have the
// context current on their thread, as programs in C do; the safe calls run on
// an ordinary goroutine, unless the row says otherwise.
//
// After these rows come groups, each with a table and a plot of its own: what
// waiting costs, one goroutine's and that of thousands, the steps of a simulation, calls of cuFFT and cuRAND, host functions,
// graphs, and copies between two GPUs.
// -run chooses rows and -group groups; either leaves out all others. CPU is the time of the whole process, and threads are those above what it
// had when the GPU had been opened.
//
// Times of different runs are not to be compared: machines and clocks differ.
// Their ratios in one run are. -compare prints which ratios to C differ from those of an
// earlier run, whose -json file it reads, by more than 10 % (-threshold) and by more than 15 ns,
// and which rows only one of the runs has. If a ratio got worse, the exit status is 1.
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
	"github.com/cudabind/cudabind/internal/cloop"
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
	a, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if !cloop.Built {
		return errors.New("it compares with loops in C: build it with cgo")
	}
	var old *report
	if a.old != "" {
		if old, err = readReport(a.old); err != nil {
			return err
		}
	}
	if err := driver.Open(a.library); err != nil {
		return err
	}
	r, err := a.bench(a.wanted, stdout, stderr)
	if err == nil && a.json != "" {
		err = r.writeFile(a.json)
	}
	if err == nil && a.plots != "" {
		err = r.writePlots(a.plots)
	}
	if err == nil && old != nil {
		err = r.compare(stdout, old.only(a.wanted), a.percent)
	}
	if r != nil && r.failed() > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows or groups failed", r.failed()))
	}
	return err
}

// arguments are those of the command line.
type arguments struct {
	options
	wanted           choice
	plots, json, old string
	percent          float64
}

func parse(args []string, stderr io.Writer) (a arguments, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	pattern := fs.String("run", "", "measure the rows whose name matches the `regexp`, and the empty cgo call")
	groupPattern := fs.String("group", "", "measure the groups whose name matches the `regexp`")
	fs.IntVar(&a.rounds, "rounds", 11, "how many rounds the rows have")
	fs.BoolVar(&a.short, "short", false, "3 rounds of 2 ms and small groups, to see that it works")
	fs.BoolVar(&a.markdown, "markdown", false, "print the tables of the groups as Markdown")
	fs.StringVar(&a.plots, "plots", "", "draw the groups as SVG files in `folder`")
	fs.StringVar(&a.json, "json", "", "write the results to `file` as well, with the minimum of the rounds")
	fs.StringVar(&a.old, "compare", "", "compare the ratios to C with those in `file`, which -json of an earlier run wrote")
	fs.Float64Var(&a.percent, "threshold", 10, "by how many `percent` a ratio must differ for -compare to print it")
	fs.StringVar(&a.library, "lib", "", "driver library, or the `folder` that holds it (default: where it usually is)")
	fs.IntVar(&a.device, "device", 0, "ordinal of the GPU")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return a, err
		}
		return a, usageError{err}
	}
	a.wanted, err = choose(*pattern, *groupPattern)
	switch {
	case err != nil:
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case a.rounds < 1:
		err = fmt.Errorf("-rounds %d: there must be one", a.rounds)
	case !(a.percent > 0):
		err = fmt.Errorf("-threshold %g: it must be more than 0", a.percent)
	}
	if err != nil {
		return a, usageError{err}
	}
	return a, nil
}

// options are those of the measurements.
type options struct {
	library        string
	device, rounds int
	short          bool
	markdown       bool
}

func (o *options) effort(g *gpu) effort {
	e := effort{meter: meter{rounds: o.rounds, round: 10 * time.Millisecond}, short: o.short}
	if o.short {
		e.meter = meter{rounds: 3, round: 2 * time.Millisecond}
	}
	e.meter.current = g.ctx.WithCurrent
	return e
}

// bench measures the wanted rows and groups, and prints each when it is done.
func (o *options) bench(wanted choice, w, stderr io.Writer) (*report, error) {
	g, err := openGPU(o.device)
	if err != nil {
		return nil, err
	}
	defer g.close()
	all, err := rows(g)
	if err != nil {
		return nil, err
	}
	e := o.effort(g)
	r := &report{Header: g.header()}
	table := newTable(w, all)
	table.markdown = o.markdown
	if err := table.begin(&r.Header); err != nil {
		return nil, err
	}
	if wanted.rows != nil {
		if err := r.measureRows(all, wanted.rows, &e.meter, table); err != nil {
			return nil, err
		}
	}
	chosen := wanted.of(groups)
	alone := wanted.rows == nil && len(chosen) == 1
	for _, p := range chosen {
		result, err := p.measureIn(g, e, alone, o, stderr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		r.Groups = append(r.Groups, result)
		if err := table.group(result); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *report) measureRows(all []row, wanted *regexp.Regexp, m *meter, table *table) error {
	if err := table.columns(); err != nil {
		return err
	}
	for _, row := range all {
		if !row.always && !wanted.MatchString(row.name) {
			continue
		}
		result, err := m.measure(&row)
		if safe.IsFatal(err) {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		r.add(result, row.targets)
		if err := table.line(result); err != nil {
			return err
		}
	}
	return nil
}
