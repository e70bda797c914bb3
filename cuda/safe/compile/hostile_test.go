//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package compile

import (
	"context"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
)

// TestHostile calls every function and method with nil, zero and extreme values.
func TestHostile(t *testing.T) {
	if onGPU {
		t.Skip("the simulated driver takes any code")
	}
	hostile := drivertest.Hostile{Objects: func(t *testing.T) []any {
		x := open(t)
		return []any{x, x.Device(), os.DirFS("testdata"), Options{Arch: "sm_90", CacheFolder: drivertest.TempDir(t)}}
	}}
	hostile.Run(t, map[string]any{
		"Arch": Arch, "Compile": Compile, "Link": Link, "Load": Load, "LoadFS": LoadFS, "LoadImage": LoadImage, "LoadFile": LoadFile,
	}, []any{&Diagnostic{}, &Error{}, &Image{}, Format(0)})
}

// TestNil: what is nil is named.
func TestNil(t *testing.T) {
	x := open(t)
	o := Options{Arch: "sm_90"}
	var none context.Context
	for name, c := range map[string]struct {
		call func() error
		want string
	}{
		"image":              {func() error { _, err := (*Image)(nil).Load(x); return err }, "cuda: compile.Image.Load: invalid argument: the image is nil"},
		"files":              {func() error { _, err := LoadFS(t.Context(), x, nil, "x.cu", o); return err }, "cuda: compile.LoadFS: invalid argument: the file system is nil"},
		"context of Load":    {func() error { _, err := Load(none, x, "", o); return err }, "cuda: compile.Load: invalid argument: the context.Context is nil"},
		"context of Compile": {func() error { _, err := Compile(none, "", o); return err }, "cuda: compile.Compile: invalid argument: the context.Context is nil"},
		"context of Link": {func() error {
			_, err := Link(none, []Input{{Source: "x"}}, o)
			return err
		}, "cuda: compile.Link: invalid argument: the context.Context is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.call()
			assert.ErrorIs(t, err, safe.ErrInvalidArgument)
			assert.EqualError(t, err, c.want)
		})
	}
	assert.Equal(t, "cuda: compile.: <nil>", (&Error{}).Error())
	assert.NotErrorIs(t, &Error{}, safe.ErrClosed)
}
