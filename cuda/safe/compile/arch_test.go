package compile

import (
	"context"
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseArch(t *testing.T) {
	for _, test := range []struct {
		text   string
		format Format
		name   string // of the option; "" if it is refused
	}{
		{"sm_90", MachineCode, "sm_90"},
		{"sm_90a", MachineCode, "sm_90a"},
		{"sm_100f", LTOIR, "sm_100f"},
		{"sm_90", PTX, "compute_90"},
		{"compute_90", PTX, "compute_90"},
		{"compute_90", MachineCode, ""},
		{"", MachineCode, ""},
		{"90", MachineCode, ""},
		{"sm_1", MachineCode, ""},
		{"sm_9", MachineCode, ""},
		{"sm_29", MachineCode, ""},
		{"sm_090", MachineCode, ""},
		{"sm_90x", MachineCode, ""},
		{"sm_90 -G", MachineCode, ""},
		{"sm_9000", MachineCode, ""},
	} {
		t.Run(test.text+" "+test.format.String(), func(t *testing.T) {
			a, err := parseArch(test.text, test.format)
			if test.name == "" {
				assert.ErrorIs(t, err, safe.ErrInvalidArgument)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.name, a.name(test.format))
		})
	}
	_, err := parseArch("compute_10", PTX)
	assert.ErrorContains(t, err, `"compute_10" is older than sm_30`)
}

func TestForDevice(t *testing.T) {
	known := []int{75, 80, 90, 100, 120}
	for _, test := range []struct {
		device int
		arch   string
		format Format
		says   string
	}{
		{90, "90", MachineCode, ""},
		{130, "120", PTX, ""},
		{110, "100", PTX, ""},
		{70, "70", MachineCode, "-version 12 nvrtc"},
		{37, "37", MachineCode, "toolkit 11.8"},
	} {
		a, f := forDevice(arch{number: test.device}, MachineCode, known)
		assert.Equal(t, test.arch, a.String())
		assert.Equal(t, test.format, f)
		err := refuseArch(a, MachineCode, known, "13.5")
		if test.says == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, test.says)
	}
	assert.ErrorContains(t, refuseArch(arch{number: 130}, MachineCode, known, "13.5"), "does not know sm_130")
	assert.ErrorContains(t, refuseArch(arch{number: 130}, PTX, known, "13.5"), "does not know compute_130")
	for _, a := range []arch{{90, "a"}, {100, "a"}, {100, "f"}, {120, "f"}} {
		assert.NoError(t, refuseArch(a, MachineCode, known, "13.5"))
	}
	for _, a := range []arch{{75, "a"}, {80, "f"}, {90, "f"}} {
		err := refuseArch(a, MachineCode, known, "13.5")
		assert.ErrorIs(t, err, safe.ErrInvalidArgument)
		assert.ErrorContains(t, err, "there is no sm_"+a.String())
	}
	err := refuseArch(arch{100, "f"}, MachineCode, known, "12.8")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "NVRTC 12.9 or newer")
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		o    Options
		says string
	}{
		"format":          {Options{Format: 7}, "Format(7)"},
		"registers":       {Options{MaxRegisters: -1}, "MaxRegisters"},
		"architecture":    {Options{Flags: []string{"-arch=sm_1"}}, "use Arch"},
		"include path":    {Options{Flags: []string{"-I/usr/include"}}, "use IncludePaths"},
		"macro":           {Options{Flags: []string{"--define-macro=X"}}, "use Defines"},
		"file of flags":   {Options{Flags: []string{"--options-file=f"}}, "use Flags"},
		"no dash":         {Options{Flags: []string{"sm_90"}}, "dash"},
		"macro's name":    {Options{Defines: map[string]string{"A=B": ""}}, "no name of a macro"},
		"zero byte":       {Options{Kernels: []string{"k\x00"}}, "zero byte"},
		"LTO and LTO-IR":  {Options{LTO: true, Format: LTOIR}, "only Format"},
		"cache":           {Options{CacheBytes: -1}, "CacheBytes is -1"},
		"standard":        {Options{Standard: "c++17 -include x"}, "Options.Standard"},
		"no name":         {Options{Defines: map[string]string{"": "1"}}, "Options.Defines"},
		"a flag's name":   {Options{Defines: map[string]string{"-I/x": "1"}}, "Options.Defines"},
		"a macro's lines": {Options{Defines: map[string]string{"A": "1\n#include <x>"}}, "the value of A in Options.Defines"},
		"a macro's zero":  {Options{Defines: map[string]string{"A": "\x00"}}, "Options.Defines"},
		"empty folder":    {Options{IncludePaths: []string{"/a", ""}}, "Options.IncludePaths: entry 1, \"\", is empty"},
		"blank folder":    {Options{IncludePaths: []string{" \t"}}, "Options.IncludePaths: entry 0"},
		"blanks around":   {Options{IncludePaths: []string{"a "}}, "./NAME/"},
		"equals sign":     {Options{IncludePaths: []string{"=a"}}, "./NAME/"},
		"folder's lines":  {Options{IncludePaths: []string{"a\nb"}}, "control character"},
		"folder's zero":   {Options{IncludePaths: []string{"a\x00"}}, "Options.IncludePaths: entry 0, \"a\\x00\", has a zero byte"},
		"empty kernel":    {Options{Kernels: []string{""}}, "Options.Kernels: entry 0, \"\", is empty"},
		"kernel's lines":  {Options{Kernels: []string{"k\nl"}}, "Options.Kernels: entry 0"},
		"empty flag":      {Options{Flags: []string{""}}, "dash"},
		"no flag":         {Options{Flags: []string{"--"}}, "dash and a name"},
		"flag's lines":    {Options{Flags: []string{"-w\n"}}, "Options.Flags: entry 0"},
	} {
		t.Run(name, func(t *testing.T) { assert.ErrorContains(t, test.o.check(), test.says) })
	}
	o := Options{
		Standard: "c++20", FastMath: true, LineInfo: true, MaxRegisters: 32, Flags: []string{"-fmad=false"},
		Defines: map[string]string{"N": "4", "A": ""}, IncludePaths: []string{"/a b"},
	}
	require.NoError(t, o.check())
	assert.Equal(t, []string{"-arch=sm_90", "-modify-stack-limit=false", "-rdc=true", "-std=c++20", "-use_fast_math", "-lineinfo", "-maxrregcount=32", "-DA", "-DN=4", "-I/a b", "-I/cuda", "-fmad=false"}, o.flags(arch{number: 90}, true, []string{"/cuda"}))
	assert.True(t, o.cacheable())
	assert.False(t, (&Options{NoCache: true}).cacheable())
	for flag, want := range map[string]bool{
		"-fmad=false": true, "--ftz=true": true, "-w": true, "--diag-suppress=177,20": true, "-Xptxas=-v": true, "--ptxas-options=-O2": true, "-opt-info=inline": true,
		"-time=t.csv": false, "-pch": false, "-create-pch=a": false, "-fdevice-time-trace=t": false, "-Xptxas=--options-file=f": false, "-fmad=false -include=x": false,
		"-new": false, "-frandom-seed=../x": false, "-Xptxas=-o": false, "---w": false, "-fmad=": false,
	} {
		assert.Equal(t, want, (&Options{Flags: []string{flag}}).cacheable(), flag)
	}
	for variable, want := range map[string]bool{"NVRTC_APPEND_FLAGS=-w": true, "EDG_BASE=/": true, "NVVM_IR_VER_CHK=0": true, "PATH=/NVRTC": false, "CUDA_HOME=/x": false, "NV": false} {
		assert.Equal(t, want, steered([]string{"A=b", variable}), variable)
	}
}

// TestClone: a call that goes on in the background does not see what the caller changes.
func TestClone(t *testing.T) {
	o := Options{Kernels: []string{"k"}, IncludePaths: []string{"i"}, Flags: []string{"-f"}, Defines: map[string]string{"D": "d"}}
	c := o.clone()
	assert.Equal(t, o, c)
	o.Kernels[0], o.IncludePaths[0], o.Flags[0], o.Defines["D"] = "x", "x", "x", "x"
	assert.Equal(t, Options{Kernels: []string{"k"}, IncludePaths: []string{"i"}, Flags: []string{"-f"}, Defines: map[string]string{"D": "d"}}, c)
}

func TestPlain(t *testing.T) {
	for name, test := range map[string]struct{ text, want, says string }{
		"plain":           {"int x;", "int x;", ""},
		"UTF-8":           {"\ufeffint x;", "int x;", ""},
		"within the text": {"int x; // \ufeff", "int x; // \ufeff", ""},
		"UTF-16":          {"\xff\xfei\x00", "", "the source is UTF-16"},
		"UTF-16, big":     {"\xfe\xff\x00i", "", "the source is UTF-16"},
		"zero byte":       {"int\x00", "", "the source has a zero byte"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := plain(test.text, "the source")
			if test.says != "" {
				assert.ErrorIs(t, err, safe.ErrInvalidArgument)
				assert.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, text)
		})
	}
}

func TestSourceName(t *testing.T) {
	for file, want := range map[string]string{"": "source.cu", "a.cu": "a.cu", "-k.cu": "./-k.cu", "--x": "./--x", "a b.cu": "a b.cu", "a\nb": "", "a\x00": ""} {
		name, err := sourceName(file)
		assert.Equal(t, want, name)
		assert.Equal(t, want == "", err != nil, file)
	}
}

// TestNoCache: NVRTC from 12.9 on has a cache of its own, for which it loads the driver's library
// also from the current folder. It is turned off.
func TestNoCache(t *testing.T) {
	for version, want := range map[string]int{"11.8": 0, "12.8": 0, "12.9": 1, "13.5": 1} {
		for _, flags := range [][]string{nil, {"-no-cache"}} {
			j := &job{compiler: &compiler{version: version}, o: &Options{Flags: flags}}
			p, err := j.prepare(context.Background(), &cudaHeaders{})
			require.NoError(t, err)
			n := 0
			for _, flag := range p.unit.flags {
				if flag == "-no-cache" {
					n++
				}
			}
			assert.Equal(t, max(want, len(flags)), n, version)
		}
	}
}

// TestImageRefused: what cannot be loaded is refused before a driver is asked.
func TestImageRefused(t *testing.T) {
	_, err := (&Image{Format: LTOIR, Code: []byte(ltoMagic)}).Load(nil)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorContains(t, err, "Image.Load: invalid argument: LTO-IR cannot be loaded: link it with Link")
	_, err = (*Image)(nil).Load(nil)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	_, err = LoadFS(context.Background(), nil, nil, "a.cu", Options{})
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.NotEmpty(t, (&Error{}).Error())
}
