// Package command starts the C compiler and programs that were built for the
// target, which need not be the machine that builds them.
package command

import (
	"os"
	"os/exec"
	"strings"
)

// Wrapper is the variable that names the program to run built programs with,
// such as "qemu-aarch64 -L /usr/aarch64-linux-gnu". It is for programs that
// tests and tools start what go test -exec is for the tests themselves.
const Wrapper = "CUDABIND_EXEC"

// CC returns the C compiler with args: $CC, which may have arguments of its own,
// else cc.
func CC(args ...string) *exec.Cmd {
	words := strings.Fields(os.Getenv("CC"))
	if len(words) == 0 {
		words = []string{"cc"}
	}
	return exec.Command(words[0], append(words[1:], args...)...)
}

// Built returns a program that was built for the target, with args.
func Built(program string, args ...string) *exec.Cmd {
	words := append(strings.Fields(os.Getenv(Wrapper)), program)
	return exec.Command(words[0], append(words[1:], args...)...)
}

// Go returns a go command that runs programs or tests, such as go test, as
// [Built] does.
func Go(verb string, args ...string) *exec.Cmd {
	if w := strings.TrimSpace(os.Getenv(Wrapper)); w != "" {
		args = append([]string{"-exec", w}, args...)
	}
	return exec.Command("go", append([]string{verb}, args...)...)
}
