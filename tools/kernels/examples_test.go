package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	generateLine = regexp.MustCompile(`(?m)^//go:generate go run \.\./\.\./tools/kernels (.*)$`)
	packageLine  = regexp.MustCompile(`(?m)^package (\w+)$`)
)

// TestExamples tests that go generate would change nothing in the programs below examples.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.go")
	require.NoError(t, err)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range generateLine.FindAllSubmatch(text, -1) {
			found++
			args := string(line[1])
			t.Run(filepath.Base(filepath.Dir(file))+" "+args, func(t *testing.T) {
				require.NotContains(t, args, `"`, "this test splits arguments at spaces")
				c := exec.Command(tool(t), append([]string{"-check", "-nvrtc", nvrtcFolder(t, "13.5")}, strings.Fields(args)...)...)
				c.Dir = filepath.Dir(file)
				c.Env = append(os.Environ(), "GOPACKAGE="+string(packageLine.FindSubmatch(text)[1]))
				out, err := c.CombinedOutput()
				assert.NoError(t, err, "%s", out)
			})
		}
	}
	assert.NotZero(t, found)
}
