package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string // DIR stands for a folder that is not there yet
		says  string
		fails string
	}{
		{"newest", []string{"-o", "DIR"}, "DIR/libcuda.so.1: a simulated driver for CUDA 13.0\n", ""},
		{"older", []string{"-driver", "12.4", "-o", "DIR"}, "DIR/libcuda.so.1: a simulated driver for CUDA 12.4\n", ""},
		{"nothing", nil, "", "usage: simdriver -o DIR"},
		{"no folder", []string{"-driver", "12.4"}, "", "usage: simdriver -o DIR"},
		{"an argument", []string{"-o", "DIR", "more"}, "", "usage: simdriver -o DIR"},
		{"an unknown version", []string{"-o", "DIR", "-driver", "1.0"}, "", `cannot simulate a driver for CUDA "1.0"`},
		{"an unknown flag", []string{"-x"}, "", "-x"},
		{"help", []string{"-h"}, "", flag.ErrHelp.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			args := append([]string(nil), c.args...)
			for i, a := range args {
				if a == "DIR" {
					args[i] = dir
				}
			}
			var out bytes.Buffer
			err := run(args, &out)
			if c.fails != "" {
				assert.ErrorContains(t, err, c.fails)
				assert.Empty(t, out.String())
				assert.NoDirExists(t, dir)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(dir, c.says[len("DIR/"):]), out.String())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 1, "the library alone")
			assert.Equal(t, "libcuda.so.1", entries[0].Name())
		})
	}
}
