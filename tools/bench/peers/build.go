package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
)

// sources are the contestants in other languages.
//
//go:embed c/peer.c rs/Cargo.toml rs/src/main.rs py/*.py
var sources embed.FS

const (
	imageFile  = "kernels.ptx"
	scriptFile = "py/peer.py"

	cProgram        = "peer-c"
	rustProgram     = "peer-cudarc" // which is two contestants
	withoutTracking = "cudarc-nt"

	// headersOf is the CUDA version that the contestants in C and Rust are built for, and so the
	// oldest driver that they run on.
	headersOf = "13.0"
)

// unpack writes the kernels and the sources to a folder.
func unpack(folder string) error {
	if err := os.CopyFS(folder, sources); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, imageFile), kernels, 0o666)
}

// build builds those of the programs that are not there yet, from sources that were unpacked. The
// error says which could not be built, and why: the others are there.
func build(sources string, commands [][]string, log io.Writer) error {
	var errs []error
	for _, c := range commands {
		to := c[1]
		how := map[string]func(sources, to string) error{cProgram: buildC, rustProgram: buildRust}[filepath.Base(to)]
		if _, err := os.Stat(to); how == nil || !errors.Is(err, fs.ErrNotExist) || c[0] == withoutTracking {
			continue
		}
		err := os.MkdirAll(filepath.Dir(to), 0o777)
		if err == nil {
			err = how(sources, to)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("building %s: %w", to, err))
			continue
		}
		fmt.Fprintf(log, "built %s\n", to)
	}
	return errors.Join(errs...)
}

// buildC takes the headers that make generate fetched, or those that the compiler finds.
func buildC(sources, to string) error {
	args := []string{"-O2", "-Wall", "-Wextra"}
	if dir, err := headers.Find(headersOf); err == nil {
		args = append(args, "-I", dir)
	}
	return output(command.CC(append(args, "-o", to, filepath.Join(sources, "c", "peer.c"), "-ldl", "-lpthread")...))
}

func buildRust(sources, to string) error {
	folder := filepath.Join(sources, "rs")
	cargo := exec.Command("cargo", "build", "--release", "--quiet")
	cargo.Dir = folder
	cargo.Env = append(os.Environ(), "CARGO_TARGET_DIR="+filepath.Join(folder, "target"))
	if err := output(cargo); err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(folder, "target", "release", rustProgram))
	if err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o777)
}

// output runs a command. The error holds what it printed.
func output(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
