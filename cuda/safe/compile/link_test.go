//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Links by NVIDIA's own nvJitLink, which need no GPU.

package compile

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	caller = `extern "C" __device__ float half_of(float);
extern "C" __global__ void halve(float *v) { v[threadIdx.x] = half_of(v[threadIdx.x]); }
template<class T> __global__ void other(T *v) { *v = half_of(*v); }
`
	callee = `extern "C" __device__ float half_of(float v) { return v / 2; }`
)

// linkVersions runs a test with each nvJitLink, in a process of its own.
func linkVersions(t *testing.T, test func(t *testing.T, version string)) {
	versions(t, func(t *testing.T, version string) {
		needsNvJitLink(t, version)
		test(t, version)
	})
}

func TestLink(t *testing.T) {
	linkVersions(t, func(t *testing.T, version string) {
		ctx, o := context.Background(), own(t)
		sources := []Input{{Name: "caller.cu", Source: caller, Kernels: []string{"other<float>"}}, {Name: "callee.cu", Source: callee}}
		for _, lto := range []bool{false, true} {
			o.LTO = lto
			i, err := Link(ctx, sources, o)
			require.NoError(t, err)
			assert.Equal(t, "\x7fELF", string(i.Code[:4]))
			assert.Contains(t, string(i.Code), "halve")
			assert.Equal(t, map[string]string{"other<float>": "_Z5otherIfEvPT_"}, i.Names)
			assert.Equal(t, "sm_90", i.Arch)
			n := images(t, o)
			again, err := Link(ctx, sources, o)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(i.Code, again.Code))
			assert.Equal(t, i.Names, again.Names)
			assert.Equal(t, n, images(t, o))
		}
		assert.Equal(t, 6, images(t, o), "two sources and the result, twice")

		piece := func(source string, format Format, arch string) []byte {
			t.Helper()
			p, err := compile(ctx, must(t, arch), text{source: source}, Options{Format: format, CacheFolder: o.CacheFolder}, true)
			require.NoError(t, err)
			return p.Code
		}
		o.LTO = false
		for name, inputs := range map[string][]Input{
			"cubins":           {{Code: piece(caller, MachineCode, "sm_90")}, {Code: piece(callee, MachineCode, "sm_90")}},
			"PTX":              {{Code: piece(caller, PTX, "sm_90")}, {Code: bytes.TrimRight(piece(callee, PTX, "sm_80"), "\x00")}},
			"LTO-IR":           {{Code: piece(caller, LTOIR, "sm_90")}, {Code: piece(callee, LTOIR, "sm_80")}},
			"cubin and PTX":    {{Code: piece(caller, MachineCode, "sm_90")}, {Code: piece(callee, PTX, "sm_75")}},
			"source and PTX":   {{Source: caller}, {Code: piece(callee, PTX, "sm_75")}},
			"with an archive":  {{Source: caller}, {Source: callee}, {Code: []byte(libraryMagic)}},
			"no code":          {{Source: caller, Code: []byte{}}, {Source: callee}},
			"source and LTO":   {{Source: caller}, {Code: piece(callee, LTOIR, "sm_90")}},
			"a linked one too": {{Source: caller}, {Source: callee}, {Code: piece(twice, MachineCode, "sm_90")}},
		} {
			t.Run(name, func(t *testing.T) {
				i, err := Link(ctx, inputs, o)
				require.NoError(t, err)
				assert.Contains(t, string(i.Code), "halve")
			})
		}
		o.Format = PTX
		i, err := Link(ctx, sources, o)
		require.NoError(t, err)
		assert.Contains(t, string(i.Code), ".entry halve(")
		assert.NotContains(t, string(i.Code), ".extern", "half_of is in it")

		o.Format, o.LTO, o.Kernels = MachineCode, true, []string{"twice"}
		i, err = Compile(ctx, twice, o)
		require.NoError(t, err)
		assert.Contains(t, string(i.Code), "twice")
		assert.Equal(t, map[string]string{"twice": "twice"}, i.Names)
	})
}

// TestLinkFlags: flags about arithmetic reach the linker too, which optimizes LTO-IR.
func TestLinkFlags(t *testing.T) {
	const source = `extern "C" __global__ void f(float *v) { v[0] = v[1] * v[2] + v[3]; v[4] = v[5] / v[6]; v[7] = sqrtf(v[8]); }`
	linkVersions(t, func(t *testing.T, version string) {
		for name, test := range map[string]struct {
			flags []string
			fast  bool
			has   []string
			lacks []string
		}{
			"none":              {nil, false, []string{"fma.rn.f32", "div.rn.f32", "sqrt.rn.f32"}, []string{".ftz", "approx"}},
			"no FMA":            {[]string{"-fmad=false"}, false, []string{"mul.rn.f32", "add.rn.f32"}, []string{"fma"}},
			"two dashes":        {[]string{"--fmad=false"}, false, []string{"mul.rn.f32"}, []string{"fma"}},
			"the last one":      {[]string{"-fmad=false", "-fmad=true"}, false, []string{"fma.rn.f32"}, nil},
			"no denormals":      {[]string{"-ftz=true"}, false, []string{"fma.rn.ftz.f32", "div.rn.ftz.f32", "sqrt.rn.ftz.f32"}, nil},
			"division":          {[]string{"-prec-div=false"}, false, []string{"div.full.f32", "sqrt.rn.f32"}, nil},
			"roots":             {[]string{"-prec-sqrt=false"}, false, []string{"div.rn.f32", "sqrt.approx.f32"}, nil},
			"fast":              {nil, true, []string{"fma.rn.ftz.f32", "sqrt.approx.ftz.f32"}, nil},
			"fast without FMA":  {[]string{"-fmad=false"}, true, []string{"mul.rn.ftz.f32", "add.rn.ftz.f32"}, []string{"fma"}},
			"one of the linker": {[]string{"-Xptxas=-O1", "-w"}, false, []string{"fma.rn.f32"}, nil},
		} {
			t.Run(name, func(t *testing.T) {
				o := own(t)
				o.Format, o.Flags, o.FastMath = PTX, test.flags, test.fast
				i, err := Link(context.Background(), []Input{{Source: source}}, o)
				require.NoError(t, err)
				for _, has := range test.has {
					assert.Contains(t, string(i.Code), has)
				}
				for _, lacks := range test.lacks {
					assert.NotContains(t, string(i.Code), lacks)
				}
			})
		}
		o := own(t)
		o.LTO = true
		optimized, err := Link(context.Background(), []Input{{Source: source}}, o)
		require.NoError(t, err)
		for _, flag := range []string{"-Xptxas=-O0", "--ptxas-options=-O0"} {
			o.Flags = []string{flag}
			i, err := Link(context.Background(), []Input{{Source: source}}, o)
			require.NoError(t, err)
			assert.Greater(t, len(i.Code), len(optimized.Code), flag)
		}
	})
}

func must(t *testing.T, name string) arch {
	a, err := parseArch(name, MachineCode)
	require.NoError(t, err)
	return a
}

func TestLinkErrors(t *testing.T) {
	linkVersions(t, func(t *testing.T, version string) {
		ctx := context.Background()
		for name, test := range map[string]struct {
			inputs []Input
			change func(o *Options)
			says   string
		}{
			"nothing":         {nil, nil, "no inputs"},
			"an empty input":  {[]Input{{Name: "e"}}, nil, "either Source or Code"},
			"both":            {[]Input{{Source: "a", Code: []byte("b")}}, nil, "either Source or Code"},
			"kernels":         {[]Input{{Source: twice}}, func(o *Options) { o.Kernels = []string{"twice"} }, "Input.Kernels"},
			"LTO-IR":          {[]Input{{Source: twice}}, func(o *Options) { o.Format = LTOIR }, "use Compile"},
			"no architecture": {[]Input{{Source: twice}}, func(o *Options) { o.Arch = "sm_1" }, "sm_1"},
			"unknown one":     {[]Input{{Code: []byte(".version 7.0\n.target sm_70\n.address_size 64\n")}}, func(o *Options) { o.Arch = "sm_99" }, "99"},
			"undefined":       {[]Input{{Name: "caller.cu", Source: caller}}, nil, "half_of"},
			"undefined, LTO":  {[]Input{{Name: "caller.cu", Source: caller}}, func(o *Options) { o.LTO = true }, "half_of"},
			"twice":           {[]Input{{Source: callee}, {Source: callee}}, func(o *Options) { o.LTO = true }, "half_of"},
			"nonsense":        {[]Input{{Name: "junk", Code: []byte("hello world")}}, nil, "junk"},
			"wrong PTX":       {[]Input{{Code: []byte(".version 7.0\n.target sm_70\n.address_size 64\nbad")}}, nil, "ptx input:4: error"},
			"newer PTX":       {[]Input{{Code: []byte(".version 19.0\n.target sm_70\n.address_size 64\n")}}, nil, "tools/libs@latest get nvjitlink"},
			"wrong source":    {[]Input{{Name: "a.cu", Source: "missing"}}, nil, "a.cu:1:"},
		} {
			t.Run(name, func(t *testing.T) {
				o := own(t)
				if test.change != nil {
					test.change(&o)
				}
				_, err := Link(ctx, test.inputs, o)
				assert.ErrorContains(t, err, test.says)
				assert.ErrorContains(t, err, "cuda: compile.Link: ")
				var e *Error
				assert.ErrorAs(t, err, &e)
			})
		}
		// Once PTX of an unknown version was refused, nvJitLink returns success on that thread.
		for range 3 {
			_, err := linkNow([]string{"-arch=sm_90"}, []piece{{code: []byte(".version 19.0\n.target sm_70\n.address_size 64\n")}}, MachineCode)
			assert.Error(t, err)
			_, err = Link(ctx, []Input{{Source: caller}}, own(t))
			assert.ErrorContains(t, err, "half_of")
		}
		_, err := Link(ctx, nil, own(t))
		assert.ErrorIs(t, err, safe.ErrInvalidArgument)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = Link(ended, []Input{{Source: twice}}, own(t))
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// TestLinkOld: an old nvJitLink refuses what a newer NVRTC compiled.
func TestLinkOld(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		needsNvJitLink(t, "12.9")
		ctx, o := context.Background(), own(t)
		o.LTO = true
		_, err := Link(ctx, []Input{{Source: twice}}, o)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "nvJitLink 12.9 cannot link LTO-IR of NVRTC 13.5")
		o.LTO, o.Format = false, LTOIR
		i, err := Compile(ctx, twice, o)
		require.NoError(t, err)
		o.Format = MachineCode
		_, err = Link(ctx, []Input{{Code: i.Code}}, o)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "get nvjitlink")
		files, err := filepath.Glob(filepath.Join(o.CacheFolder, "*"+entrySuffix))
		require.NoError(t, err)
		assert.Len(t, files, 1, "only the LTO-IR")
	})
}
