package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"

	"github.com/cudabind/cudabind/headers"
)

func fetch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	from := flags.String("from", "", "")
	versions, err := parseArgs(flags, args, stdout)
	if err != nil {
		return err
	}
	switch {
	case len(versions) == 0:
		return usageError("fetch which version?")
	case *from != "" && (len(versions) > 1 || versions[0] == "all"):
		return usageError("a toolkit is of one version")
	case len(versions) == 1 && versions[0] == "all":
		versions = known()
	}
	for _, v := range versions {
		dir, err := fetchOne(ctx, v, *from, stderr)
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, dir)
	}
	return nil
}

func fetchOne(ctx context.Context, version, from string, stderr io.Writer) (string, error) {
	if from != "" {
		return headers.FetchFrom(version, from)
	}
	return headers.Fetch(ctx, version, stderr)
}

func known() []string {
	var versions []string
	for _, r := range headers.Releases() {
		versions = append(versions, r.Version)
	}
	return versions
}

func list(args []string, stdout io.Writer) error {
	args, err := parseArgs(flag.NewFlagSet("list", flag.ContinueOnError), args, stdout)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		return usageError("list takes no arguments")
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CUDA\tPACKAGE\tVERSION\tHEADERS")
	for _, r := range headers.Releases() {
		dir, err := r.Find()
		if errors.Is(err, fs.ErrNotExist) {
			dir, err = "-", nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Version, r.Wheel, r.WheelVersion, dir)
	}
	return w.Flush()
}
