package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/headers"
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
	return unchanged(replaceFiles([]replacement{{filepath.Join(root, "gen", "model", "since.txt"), []byte(table)}, {file, data}}))
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

// A replacement is the new content of a file.
type replacement struct {
	name string
	data []byte
}

// replaceFiles writes all contents beside their files, and then puts them in their places. A file that is so already stays.
func replaceFiles(all []replacement) error {
	staged := make([]string, len(all))
	defer func() {
		for _, tmp := range staged {
			os.Remove(tmp) // "" or gone already, unless there was an error
		}
	}()
	for i, r := range all {
		old, err := os.ReadFile(r.name)
		if err == nil && bytes.Equal(old, r.data) {
			continue
		}
		if staged[i], err = stage(r); err != nil {
			return err
		}
	}
	for i, r := range all {
		if staged[i] == "" {
			continue
		}
		if err := os.Rename(staged[i], r.name); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile leaves either the old content or the new.
func replaceFile(name string, data []byte) error {
	return replaceFiles([]replacement{{name, data}})
}

// stage writes the content to a file beside the one that it is for.
func stage(r replacement) (tmp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(r.name), ".tmp-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(r.data)
	return f.Name(), errors.Join(err, f.Close(), os.Chmod(f.Name(), 0o644))
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
