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

// GoTest returns the words of a go test command that runs its tests as [Built]
// runs programs.
func GoTest(args ...string) []string {
	if w := strings.TrimSpace(os.Getenv(Wrapper)); w != "" {
		args = append([]string{"-exec", w}, args...)
	}
	return append([]string{"test"}, args...)
}
