package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string // DIR stands for a folder that is not there yet
		says  string   // DIR as in args
		files []string
		fails string
	}{
		{"newest", []string{"-o", "DIR"}, "DIR/libcuda.so.1: a simulated driver for CUDA 13.0\nDIR/libnvrtc.so.13: a double of NVRTC for it\n",
			[]string{"libcuda.so.1", "libnvrtc.so.13"}, ""},
		{"older", []string{"-driver", "12.4", "-o", "DIR"}, "DIR/libcuda.so.1: a simulated driver for CUDA 12.4\nDIR/libnvrtc.so.12: a double of NVRTC for it\n",
			[]string{"libcuda.so.1", "libnvrtc.so.12", "libnvrtc.so.13"}, ""},
		{"the driver alone", []string{"-o", "DIR", "-nvrtc=false"}, "DIR/libcuda.so.1: a simulated driver for CUDA 13.0\n",
			[]string{"libcuda.so.1"}, ""},
		{"kernels", []string{"-o", "DIR", "-nvrtc=false", "-kernels", "sim/testdata/kernels.c"},
			"DIR/libcuda.so.1: a simulated driver for CUDA 13.0\nDIR/libsimkernels.so: kernels for it\n",
			[]string{"libcuda.so.1", "libsimkernels.so"}, ""},
		{"nothing", nil, "", nil, "usage: simdriver -o DIR"},
		{"no folder", []string{"-driver", "12.4"}, "", nil, "usage: simdriver -o DIR"},
		{"an argument", []string{"-o", "DIR", "more"}, "", nil, "usage: simdriver -o DIR"},
		{"an unknown version", []string{"-o", "DIR", "-driver", "1.0"}, "", nil, `cannot simulate a driver for CUDA "1.0"`},
		{"an unknown flag", []string{"-x"}, "", nil, "-x"},
		{"kernels that are not there", []string{"-o", "DIR", "-kernels", "none.c"}, "", nil, "none.c"},
		{"help", []string{"-h"}, "", nil, flag.ErrHelp.Error()},
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
				left, _ := os.ReadDir(dir)
				assert.Empty(t, left)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, strings.ReplaceAll(c.says, "DIR", dir), out.String())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			var files []string
			for _, e := range entries {
				files = append(files, e.Name())
			}
			assert.Equal(t, c.files, files)
		})
	}
}
