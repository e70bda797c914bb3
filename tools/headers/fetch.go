package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"strings"
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
	case *from != "" && (len(versions) > 1 || versions[0] == "all" || versions[0] == "requested"):
		return usageError("a toolkit is of one version")
	}
	var dirs []string
	if *from != "" {
		dirs = make([]string, 1)
		dirs[0], err = headers.FetchFrom(versions[0], *from)
	} else {
		dirs, err = fetchAll(ctx, versions, stderr)
	}
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		fmt.Fprintln(stdout, dir)
	}
	return nil
}

func fetchAll(ctx context.Context, versions []string, stderr io.Writer) (dirs []string, err error) {
	if len(versions) == 1 && versions[0] == "all" {
		return headers.FetchAll(ctx, headers.Releases(), stderr)
	}
	if len(versions) == 1 && versions[0] == "requested" {
		releases, err := headers.RequestedReleases()
		if err != nil {
			return nil, err
		}
		return headers.FetchAll(ctx, releases, stderr)
	}
	releases := make([]headers.Release, len(versions))
	for i, v := range versions {
		if releases[i], err = headers.Lookup(v); err != nil {
			return nil, err
		}
	}
	return headers.FetchAll(ctx, releases, stderr)
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
	fmt.Fprintln(w, "CUDA\tPACKAGE\tVERSION\tLIBRARIES\tHEADERS")
	for _, r := range headers.Releases() {
		dir, err := r.Find()
		if errors.Is(err, fs.ErrNotExist) {
			dir, err = "-", nil
		}
		if err != nil {
			return err
		}
		var libraries []string
		for _, l := range r.Libraries {
			libraries = append(libraries, l.Name)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Version, r.Wheel, r.WheelVersion,
			cmp.Or(strings.Join(libraries, ","), "-"), dir)
	}
	return w.Flush()
}
