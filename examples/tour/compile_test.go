//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const scaleSource = `
template<class T> __global__ void scale(T *v, T factor, unsigned n) {
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) v[i] *= factor;
}`

// scaleOptions name the instance of the template that is to be compiled.
var scaleOptions = compile.Options{File: "scale.cu", Kernels: []string{"scale<float>"}}

// scale multiplies all values of b by factor. The second call, even in another process,
// finds the compiled kernel in the cache.
func scale(ctx context.Context, x *safe.Context, s *safe.Stream, b *safe.Buffer[float32], factor float32) error {
	m, err := compile.Load(ctx, x, scaleSource, scaleOptions)
	if err != nil {
		return err
	}
	defer m.Close() // unloads it after the launch
	k, err := m.Kernel("scale<float>")
	if err != nil {
		return err
	}
	return k.Launch(s, safe.Threads(b.Len()), b.Arg(), safe.Val(factor), safe.Val(uint32(b.Len())))
}

// lines lists the compiler's messages, as editors read them.
func lines(err error) (all []string) {
	var e *compile.Error
	if errors.As(err, &e) {
		for _, d := range e.Diagnostics {
			all = append(all, fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, d.Message))
		}
	}
	return all
}

func TestCompile(t *testing.T) {
	needsNVRTC(t)
	x, ctx := open(t), context.Background()
	_, err := compile.Load(ctx, x, strings.Replace(scaleSource, "factor;", "missing;", 1), scaleOptions)
	assert.Equal(t, []string{`scale.cu:4:21: identifier "missing" is undefined`}, lines(err))
	o := scaleOptions
	o.Arch, err = compile.Arch(x.Device())
	require.NoError(t, err)
	image, err := compile.Compile(ctx, scaleSource, o)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"scale<float>": "_Z5scaleIfEvPT_S0_j"}, image.Names)
	if !onGPU {
		return // the simulated driver runs no machine code
	}
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	require.NoError(t, b.Fill(3))
	for range 2 {
		require.NoError(t, scale(ctx, x, s, b, 2))
	}
	assert.EqualValues(t, 12, values(t, b)[999])
}
