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
	for _, v := range versions {
		if err := addOne(ctx, file, v, stderr); err != nil {
			return err
		}
	}
	return facts(ctx, root, stderr)
}

func addOne(ctx context.Context, file, version string, stderr io.Writer) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	releases, err := headers.ParseManifest(old)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	pinned, err := headers.Pin(ctx, version, stderr)
	if err != nil {
		return err
	}
	// That the pin can be fetched is seen before it is written down.
	if _, err := pinned.Fetch(ctx, stderr); err != nil {
		return err
	}
	releases = slices.DeleteFunc(releases, func(r headers.Release) bool { return r.Version == version })
	data, err := headers.FormatManifest(append(releases, pinned))
	if err != nil {
		return err
	}
	if bytes.Equal(data, old) {
		fmt.Fprintf(stderr, "CUDA %s: %s is the newest, nothing changed\n", version, pinned.WheelVersion)
		return nil
	}
	fmt.Fprintf(stderr, "CUDA %s: pinned %s %s\n", version, pinned.Wheel, pinned.WheelVersion)
	for _, l := range pinned.Libraries {
		fmt.Fprintf(stderr, "CUDA %s: pinned %s %s\n", version, l.Wheel, l.WheelVersion)
	}
	return replaceFile(file, data)
}

// replaceFile leaves either the old content or the new.
func replaceFile(name string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
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
