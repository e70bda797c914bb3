//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package compile

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unsized is a file system that does not know how long its files are.
type unsized struct{ fstest.MapFS }

func (u unsized) Open(name string) (fs.File, error) {
	f, err := u.MapFS.Open(name)
	return unsizedFile{f}, err
}

func (u unsized) Stat(name string) (fs.FileInfo, error) {
	info, err := u.MapFS.Stat(name)
	return unsizedInfo{info}, err
}

type unsizedFile struct{ fs.File }

func (f unsizedFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	return unsizedInfo{info}, err
}

type unsizedInfo struct{ fs.FileInfo }

func (unsizedInfo) Size() int64 { return -1 }

func TestUnsized(t *testing.T) {
	text, err := readFS(unsized{fstest.MapFS{"a.h": {Data: []byte("#define A\n")}}}, "a.h")
	require.NoError(t, err)
	assert.Equal(t, "#define A\n", text)
}
