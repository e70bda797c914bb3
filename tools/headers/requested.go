package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"

	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/replace"
)

// request pins the libraries that are bound on request for a CUDA version, in the source
// tree, in place of those of an older version of the same major.
func request(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	versions, err := parseArgs(flag.NewFlagSet("request", flag.ContinueOnError), args, stdout)
	if err != nil {
		return err
	}
	if len(versions) == 0 {
		return usageError("request for which version?")
	}
	root, err := sourceTree(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "headers", "requested.json")
	for _, v := range versions {
		pinned, err := headers.PinRequested(ctx, v, stderr)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if data, err = headers.FormatRequested(data, pinned); err != nil {
			return err
		}
		if err := replace.Files(0o644, replace.File{Name: file, Data: data}); err != nil {
			return err
		}
	}
	return nil
}
