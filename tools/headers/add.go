package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/replace"
)

const module = "github.com/cudabind/cudabind"

// add pins the newest patch of each version in the manifest of the source tree.
func add(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	versions, err := parseArgs(flag.NewFlagSet("add", flag.ContinueOnError), args, stdout)
	if err != nil {
		return err
	}
	if len(versions) == 0 {
		return usageError("add which version?")
	}
	root, err := sourceTree(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "headers", "manifest.json")
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	releases, err := headers.ParseManifest(old)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, v := range versions {
		if releases, err = withNewest(ctx, releases, v, stderr); err != nil {
			return unchanged(err)
		}
	}
	table, err := facts(ctx, releases, stderr)
	if err != nil {
		return unchanged(err)
	}
	data, err := headers.FormatManifest(releases)
	if err != nil {
		return err
	}
	return unchanged(replace.Files(0o644, replace.File{Name: filepath.Join(root, "gen", "model", "since.txt"), Data: []byte(table)}, replace.File{Name: file, Data: data}))
}

// unchanged adds to an error that it has cost nothing: both files are written at the end, once everything has been read.
func unchanged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; manifest.json and since.txt are as they were", err)
}

// withNewest pins the newest patch of a version, and fetches and checks it.
func withNewest(ctx context.Context, releases []headers.Release, version string, stderr io.Writer) ([]headers.Release, error) {
	pinned, err := headers.Pin(ctx, version, stderr)
	if err != nil {
		return nil, err
	}
	if _, err := pinned.Fetch(ctx, stderr); err != nil {
		return nil, err
	}
	old, err := headers.FormatManifest(releases)
	if err != nil {
		return nil, err
	}
	releases = slices.DeleteFunc(releases, func(r headers.Release) bool { return r.Version == version })
	data, err := headers.FormatManifest(append(releases, pinned)) // in order
	if err != nil {
		return nil, err
	}
	if bytes.Equal(data, old) {
		fmt.Fprintf(stderr, "CUDA %s: %s is the newest, nothing changed\n", version, pinned.WheelVersion)
	} else {
		fmt.Fprintf(stderr, "CUDA %s: pinning %s %s\n", version, pinned.Wheel, pinned.WheelVersion)
		for _, l := range pinned.Libraries {
			fmt.Fprintf(stderr, "CUDA %s: pinning %s %s\n", version, l.Wheel, l.WheelVersion)
		}
	}
	return headers.ParseManifest(data)
}

// sourceTree is the root of cudabind's own module, in which the command runs.
func sourceTree(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	data, err := os.ReadFile(file)
	if err != nil || !declares(data, module) {
		return "", fmt.Errorf("add changes the source of %s: run it in a checkout of that", module)
	}
	return filepath.Dir(file), nil
}

// declares reports whether a go.mod is of the module.
func declares(gomod []byte, module string) bool {
	for line := range strings.Lines(string(gomod)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "module" {
			return fields[1] == module
		}
	}
	return false
}
