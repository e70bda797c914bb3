package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFrozenTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "names.txt")
	names, err := readFrozen(file)
	require.NoError(t, err, "a table that is not there is empty")
	assert.Empty(t, names)

	now := map[string]string{"cuTake": "cuTake_v2", "CUbox": "CUbox_v1", "cudaError_t": "enum cudaError"}
	require.NoError(t, writeFrozen(file, names, now))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, frozenHead+"CUbox CUbox_v1\ncuTake cuTake_v2\ncudaError_t enum cudaError\n", string(text))
	names, err = readFrozen(file)
	require.NoError(t, err)
	assert.Equal(t, now, names)

	require.NoError(t, writeFrozen(file, names, map[string]string{"cuTake": "cuTake_v3", "cuNew": "cuNew"}))
	names, err = readFrozen(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"cuTake": "cuTake_v2", "CUbox": "CUbox_v1", "cudaError_t": "enum cudaError", "cuNew": "cuNew"}, names,
		"names are added, none is changed and none removed")

	names, err = readFrozen("")
	assert.NoError(t, err)
	assert.Nil(t, names)
	assert.NoError(t, writeFrozen("", nil, now))
}

func TestMalformedFrozenTable(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"name alone", "# head\ncuTake\n", `names.txt:2: want a name and what it means, each name once: "cuTake"`},
		{"too much", "cuTake cuTake_v2 cuTake_v3\n", "names.txt:1: want a name"},
		{"twice", "cuTake cuTake_v2\n\ncuTake cuTake_v3\n", `names.txt:3: want a name and what it means, each name once: "cuTake cuTake_v3"`},
		{"merge marks", "<<<<<<< HEAD\n", "names.txt:1: want a name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, map[string]string{"names.txt": tt.text})
			_, err := readFrozen(filepath.Join(dir, "names.txt"))
			require.ErrorContains(t, err, tt.want)
			// It stops the generator before anything is read or written.
			err = run([]string{"-headers", dir, "-package", "p", "-import", "p", "-out", filepath.Join(dir, "out"), "-frozen", filepath.Join(dir, "names.txt")}, io.Discard)
			assert.ErrorContains(t, err, tt.want)
			assert.NoDirExists(t, filepath.Join(dir, "out"))
		})
	}
	_, err := readFrozen(t.TempDir())
	assert.Error(t, err, "a folder is no table")
}

// A newer header maps a plain name elsewhere: the package keeps its meaning,
// and says so.
func TestFrozenPackage(t *testing.T) {
	c := smallConfig(include(t, "#define cuTake cuTake_v3\nint cuTake(long x);\nint cuTake_v2(int x);\n"+
		"#ifdef __CUDA_API_VERSION_INTERNAL\n#undef cuTake\nint cuTake(char x);\n#endif\n", nil))
	files, names, err := generate(c, map[string]string{"cuTake": "cuTake_v2"}, io.Discard)
	require.NoError(t, err)
	code := string(files["zthing.go"])
	assert.Contains(t, code, "func CuTake(x int32) (int32, error) {\n\treturn CuTake_v2(x)\n}")
	assert.Contains(t, code, "func CuTake_v3(x int64)")
	assert.Contains(t, code, "func CuTake_v1(x byte)")
	assert.Contains(t, words(code), "The name means [CuTake_v2] and stays that; the header of CUDA 13.5 maps cuTake to cuTake_v3, which is [CuTake_v3] here.")
	assert.Equal(t, "cuTake_v2", names["cuTake"])
}

func FuzzFrozenTable(f *testing.F) {
	f.Add(frozenHead + "cuTake cuTake_v2\ncudaError_t enum cudaError\n")
	f.Add("a b\r\n\n # x\na\tb")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(folder(t, map[string]string{"names.txt": text}), "names.txt")
		names, err := readFrozen(file)
		if err != nil {
			assert.ErrorContains(t, err, file)
			return
		}
		// What can be read is kept when it is written.
		require.NoError(t, writeFrozen(file, names, map[string]string{"cuNew": "cuNew_v2"}))
		again, err := readFrozen(file)
		require.NoError(t, err)
		want := map[string]string{"cuNew": "cuNew_v2"}
		maps.Copy(want, names)
		assert.Equal(t, want, again)
	})
}

// TestFrozenWhole: a table that cannot be written stays as it was, and a link to one stays a link.
func TestFrozenWhole(t *testing.T) {
	dir := folder(t, map[string]string{"names.txt": "cuTake cuTake_v2\n"})
	file, link := filepath.Join(dir, "names.txt"), filepath.Join(dir, "link.txt")
	require.NoError(t, os.Link(file, filepath.Join(dir, "before.txt")))
	if err := os.Symlink("names.txt", link); err != nil {
		t.Skip("no links here: ", err)
	}
	require.NoError(t, writeFrozen(link, nil, map[string]string{"cuNew": "cuNew", "odd$é": "odd$é"}))
	names, err := readFrozen(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"cuNew": "cuNew", "odd$é": "odd$é"}, names)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.False(t, info.Mode().IsRegular())
	before, err := os.ReadFile(filepath.Join(dir, "before.txt"))
	require.NoError(t, err)
	assert.Equal(t, "cuTake cuTake_v2\n", string(before), "nothing is written into the old file")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 3)
}
