// Command gpt trains a small language model on text of this machine, writes text by it, and serves
// it over HTTP:
//
//	go run github.com/cudabind/cudabind/examples/gpt                         # trains on Go's own sources
//	go run github.com/cudabind/cudabind/examples/gpt -write 'func main() {'  # continues a text
//	go run github.com/cudabind/cudabind/examples/gpt -serve localhost:8080   # a page to try it
//
// With -gpus 2 it trains on two GPUs, and with torchrun --no-python --nproc-per-node 2 ./gpt on a GPU
// in each of two processes. After an interruption it goes on where its model file is. docs/gpt.md of
// the project explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/cudabind/cudabind/examples/internal/ranks"
)

type options struct {
	text, model, plot string
	shape             shape
	sequences, steps  int
	rate              float32
	drop              int // of 256 values
	seed              uint64
	gpus              int
	report, save      int // after so many steps
	tests             int // batches

	prompt      string
	temperature float64
	length      int
	serve       string
}

func main() {
	log.SetFlags(0)
	o, rate, dropout := options{}, 0.0, 0.0
	flag.StringVar(&o.text, "text", "", "learn from the files in this `folder`, or from one file; without it from Go's own sources")
	flag.StringVar(&o.model, "model", "gpt.model", "the `file` of the model: if it is there, the training goes on")
	flag.StringVar(&o.plot, "plot", "gpt.png", "write a plot of the loss to this `file`")
	flag.IntVar(&o.shape.Layers, "layers", 8, "number of `layers`")
	flag.IntVar(&o.shape.Channels, "channels", 512, "values of a token between layers")
	flag.IntVar(&o.shape.Context, "context", 512, "number of `tokens` that the model sees")
	flag.IntVar(&o.sequences, "sequences", 32, "number of `sequences` of each step, for all GPUs together")
	flag.IntVar(&o.steps, "steps", 2000, "number of `steps`; with 0 the new model is only written")
	flag.Float64Var(&rate, "rate", 1e-3, "how fast the model learns, at most")
	flag.Float64Var(&dropout, "dropout", 0.1, "which `part` of a branch's values is dropped, in steps of 1/256")
	flag.Uint64Var(&o.seed, "seed", 1, "where random numbers begin")
	flag.IntVar(&o.gpus, "gpus", 1, "number of GPUs of this process")
	flag.IntVar(&o.report, "report", 10, "print a line after so many `steps`")
	flag.IntVar(&o.save, "save", 500, "write the model and the plot after so many `steps`")
	flag.IntVar(&o.tests, "tests", 8, "number of `batches` that measure the test loss")
	flag.Func("write", "write on from this `text`, and train no more", func(text string) error {
		if o.prompt = text; text == "" {
			return errors.New("needs at least a character to go on from")
		}
		return nil
	})
	flag.Float64Var(&o.temperature, "temperature", 0.8, "how freely the model writes: 0 is the likeliest token each time")
	flag.IntVar(&o.length, "length", 400, "number of `tokens` to write")
	flag.StringVar(&o.serve, "serve", "", "serve the model at this `address`")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("gpt: unexpected argument %q", flag.Arg(0))
	}
	o.rate, o.drop = float32(rate), int(math.Round(dropout*256))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, o, os.Stdout); err != nil {
		log.Fatal("gpt: ", o.says(ctx, err))
	}
}

// says returns what to say about an error of run.
func (o options) says(ctx context.Context, err error) string {
	switch {
	case ctx.Err() == nil || !errors.Is(err, context.Canceled):
		return err.Error()
	case o.serve != "" || o.prompt != "":
		return "interrupted"
	}
	return "interrupted: the training goes on from its last checkpoint if you run it again"
}

func run(ctx context.Context, o options, w io.Writer) error {
	switch {
	case o.serve != "":
		return serve(ctx, o, w)
	case o.prompt != "":
		return write(ctx, o, w)
	}
	return train(ctx, o, w)
}

// train trains on all GPUs of this process.
func train(ctx context.Context, o options, w io.Writer) (err error) {
	c, err := readCheckpoint(o.model)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c = &checkpoint{header: header{Shape: o.shape}}
	case err != nil:
		return err
	case c.Step >= o.steps && c.Step > 0:
		return fmt.Errorf("%s has learned for %d steps: set -steps to more, or -model to another file", o.model, c.Step)
	}
	if err := c.Shape.check(); err != nil {
		return err
	}
	text, err := readText(o.text)
	if err != nil {
		return err
	}
	if err := o.check(len(text), c.Shape, o.gpus); err != nil {
		return err
	}
	all, err := ranks.Connect(ctx, o.gpus)
	defer func() { err = errors.Join(err, all.Close()) }()
	if err != nil {
		return err
	}
	if err := o.check(len(text), c.Shape, all[0].Of); err != nil { // of all processes
		return err
	}
	before := c.Recipe
	c.Recipe = o.recipe(text, all[0].Of)
	if all[0].Number == 0 {
		fmt.Fprintf(w, "%d layers of %d channels, context %d: %d parameters; %d bytes of text, from step %d\n",
			c.Shape.Layers, c.Shape.Channels, c.Shape.Context, c.Shape.parameters(), len(text), c.Step)
		if c.Step > 0 && before != c.Recipe {
			fmt.Fprintf(w, "the losses will not be those of one run: until now it was %+v, and from now on %+v\n", before, c.Recipe)
		}
	}
	return all.Run(ctx, func(ctx context.Context, r *ranks.Rank) error { return trainOn(ctx, r, text, c, o, w) })
}

// check returns an error if the training cannot be as o says.
func (o options) check(text int, s shape, gpus int) error {
	switch {
	case min(o.sequences, o.report, o.save, o.tests, o.gpus) < 1 || o.steps < 0:
		return errors.New("-sequences, -report, -save, -tests and -gpus must be at least 1, and -steps at least 0")
	case o.steps > math.MaxInt32: // the GPU counts in 32 bits
		return fmt.Errorf("-steps must be at most %d", math.MaxInt32)
	case !(o.rate >= 0 && o.rate <= 1): // or NaN
		return errors.New("-rate must be from 0 to 1")
	case filepath.Clean(o.plot) == filepath.Clean(o.model):
		return errors.New("-plot is the file of the model: choose another one")
	case o.sequences%gpus != 0:
		return fmt.Errorf("-sequences %d is no multiple of the number of GPUs, %d", o.sequences, gpus)
	case o.drop < 0 || o.drop > 255:
		return errors.New("-dropout must be at least 0 and less than 1")
	case text/testPart <= s.Context:
		return fmt.Errorf("%d bytes of text are too few: a tenth must be longer than the context, %d", text, s.Context)
	}
	return nil
}
