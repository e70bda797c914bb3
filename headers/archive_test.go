package headers

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenArchive(t *testing.T) {
	a, err := openArchive(held(sampleWheel, packed(t, inWheel(sample))), mainHeader)
	require.NoError(t, err)
	for name, text := range sample {
		data, err := a.read(name)
		require.NoError(t, err)
		assert.Equal(t, text, string(data))
	}
	assert.False(t, a.has("lib/libsample.so"))
	_, err = a.read("absent.h")
	assert.EqualError(t, err, "it lacks the header absent.h")
}

func TestOpenArchiveRefuses(t *testing.T) {
	whole := packed(t, inWheel(sample))
	evil := func(name string) []byte { return packed(t, inWheel(sample).with(name, "x")) }
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"empty file", nil, "is no whole archive"},
		{"no archive", []byte("<html>please log in</html>"), "is no whole archive"},
		{"truncated", whole[:len(whole)/2], "is no whole archive"},
		{"last byte missing", whole[:len(whole)-1], "is no whole archive"},
		{"absolute path", evil("/etc/cuda.h"), `an entry "/etc/cuda.h"`},
		{"parent folder", evil("nvidia/../../cuda.h"), `an entry "nvidia/../../cuda.h"`},
		{"only parent", evil(".."), `an entry ".."`},
		{"backslash", evil(`nvidia\..\cuda.h`), "an entry"},
		{"absolute with backslash", evil(`\cuda.h`), "an entry"},
		{"drive letter", evil("C:/cuda.h"), `an entry "C:/cuda.h"`},
		{"no include folder", packed(t, sample), "has no include/cuda.h"},
		{"two include folders", evil("other/include/cuda.h"), "has two include folders"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := openArchive(held("a.whl", tt.data), mainHeader)
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, "a.whl")
		})
	}
}

func TestOpenArchiveRefusesTwins(t *testing.T) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range []string{"include/cuda.h", "include/a.h", "include/a.h"} {
		_, err := w.Create(name)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	_, err := openArchive(held("a.whl", buf.Bytes()), mainHeader)
	assert.EqualError(t, err, `a.whl has two entries "include/a.h"`)
}

func TestArchiveDamaged(t *testing.T) {
	text := strings.Repeat("int sample(void);\n", 1000)
	data := packed(t, inWheel(sample.with("big.h", text)))
	at := strings.Index(string(data), "big.h") + len("big.h") + 20 // inside the packed text
	data[at] ^= 0xff
	a, err := openArchive(held("a.whl", data), mainHeader)
	require.NoError(t, err)
	_, err = a.read("big.h")
	assert.ErrorContains(t, err, "big.h is damaged")
}

func TestArchiveBounds(t *testing.T) {
	a, err := openArchive(held("a.whl", packed(t, inWheel(sample.with("big.h", strings.Repeat(" ", maxHeader+1))))), mainHeader)
	require.NoError(t, err)
	_, err = a.read("big.h")
	assert.ErrorContains(t, err, "big.h is larger than")
}

// FuzzExtract: an archive is refused, or its headers stay in their folder and
// have the pinned sums.
func FuzzExtract(f *testing.F) {
	f.Add(packed(f, inWheel(sample)))
	f.Add(packed(f, inWheel(sample.without("sub/more.h"))))
	f.Add(packed(f, inWheel(sample).with("../cuda.h", "x")))
	f.Add(packed(f, inWheel(sample))[:200])
	f.Add([]byte{})
	r := sampleRelease(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := openArchive(held("fuzz.whl", data), mainHeader)
		if err != nil {
			return
		}
		for name := range a.files {
			require.True(t, safePath(name), name)
		}
		if _, err := pinned(a, runtimePart.roots); err != nil {
			return
		}
		files := map[string][]byte{}
		if err := r.load(a, files); err != nil {
			return
		}
		require.Len(t, files, len(r.Headers))
		for _, h := range r.Headers {
			require.Equal(t, h.SHA256, sum(files[h.Path]))
		}
	})
}
