package compile

import (
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
		err := refuseArch(a, known, "13.5")
		if test.says == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, test.says)
	}
	assert.ErrorContains(t, refuseArch(arch{number: 130}, known, "13.5"), "does not know sm_130")
	assert.NoError(t, refuseArch(arch{90, "a"}, known, "13.5"))
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		o    Options
		says string
	}{
		"format":         {Options{Format: 7}, "Format(7)"},
		"registers":      {Options{MaxRegisters: -1}, "MaxRegisters"},
		"architecture":   {Options{Flags: []string{"-arch=sm_1"}}, "use Arch"},
		"include path":   {Options{Flags: []string{"-I/usr/include"}}, "use IncludePaths"},
		"macro":          {Options{Flags: []string{"--define-macro=X"}}, "use Defines"},
		"file of flags":  {Options{Flags: []string{"--options-file=f"}}, "use Flags"},
		"no dash":        {Options{Flags: []string{"sm_90"}}, "dash"},
		"macro's name":   {Options{Defines: map[string]string{"A=B": ""}}, "no name of a macro"},
		"zero byte":      {Options{Kernels: []string{"k\x00"}}, "zero byte"},
		"LTO and LTO-IR": {Options{LTO: true, Format: LTOIR}, "only Format"},
	} {
		t.Run(name, func(t *testing.T) { assert.ErrorContains(t, test.o.check(), test.says) })
	}
	o := Options{
		Standard: "c++20", FastMath: true, LineInfo: true, MaxRegisters: 32, Flags: []string{"-fmad=false"},
		Defines: map[string]string{"N": "4", "A": ""}, IncludePaths: []string{"/a b"},
	}
	require.NoError(t, o.check())
	assert.Equal(t, []string{"-arch=sm_90", "-modify-stack-limit=false", "-rdc=true", "-std=c++20", "-use_fast_math", "-lineinfo", "-maxrregcount=32", "-DA", "-DN=4", "-I/a b", "-fmad=false"}, o.flags(arch{number: 90}, true))
	assert.True(t, o.cacheable())
	assert.False(t, (&Options{NoCache: true}).cacheable())
	assert.False(t, (&Options{Flags: []string{"-time=t.csv"}}).cacheable())
}
