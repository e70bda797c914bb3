package headers

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func bothWheels(t *testing.T) map[string][]byte {
	return map[string][]byte{
		sampleWheel:  packed(t, inWheel(sample)),
		libraryWheel: packedLibrary(t, librarySample),
	}
}

// both is the include folder that the two wheels make.
func both() tree {
	all := maps.Clone(sample)
	maps.Copy(all, librarySample)
	return all
}

func TestFetchByRanges(t *testing.T) {
	r, base := libraryRelease(t), place(t)
	s := newSite(t, inParts, bothWheels(t))
	var progress bytes.Buffer
	dir, err := r.Fetch(t.Context(), &progress)
	require.NoError(t, err)
	assert.NoError(t, r.verify(dir))
	assert.FileExists(t, filepath.Join(dir, "lib.h"))
	assert.ElementsMatch(t, []string{
		"asking pip where to find sample-lib, sample-pkg\n", "CUDA 12.9: downloading sample-pkg 12.9.79\n", "CUDA 12.9: downloading sample-lib 12.9.86\n",
	}, slices.Collect(strings.Lines(progress.String())))
	assert.Equal(t, []string{"index sample-lib sample-pkg"}, s.pipCalls(t))
	assert.EqualValues(t, 3, s.requests.Load(), "one for the small wheel, two for the large one")
	assert.Less(t, s.sent.Load(), int64(3*blockSize))
	assert.Equal(t, []string{"12.9"}, names(t, base))
	assert.Empty(t, names(t, os.TempDir()))
}

// Only packages of which a header is missing or damaged are fetched.
func TestFetchCompletes(t *testing.T) {
	library, runtime := "index sample-lib", "index sample-pkg"
	tests := []struct {
		name  string
		there tree
		want  string
	}{
		{"without the library", sample, library},
		{"without the runtime", librarySample, runtime},
		{"damaged library", sample.with("lib.h", "changed"), library},
		{"damaged runtime", both().with("sub/more.h", "changed"), runtime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, dir := libraryRelease(t), filepath.Join(place(t), "12.9")
			tt.there.write(t, dir)
			require.Error(t, r.verify(dir))
			s := newSite(t, inParts, bothWheels(t))
			_, err := r.Fetch(t.Context(), nil)
			require.NoError(t, err)
			assert.NoError(t, r.verify(dir))
			assert.Equal(t, []string{tt.want}, s.pipCalls(t))
		})
	}
}

// Where a wheel cannot be read in parts, pip downloads it whole.
func TestFetchFallsBack(t *testing.T) {
	tests := []struct {
		name string
		how  answer
	}{
		{"ranges ignored", func(w http.ResponseWriter, r *http.Request, data []byte) { _, _ = w.Write(data) }},
		{"ranges refused", func(w http.ResponseWriter, r *http.Request, _ []byte) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}},
		{"login wanted", func(w http.ResponseWriter, r *http.Request, _ []byte) { w.WriteHeader(http.StatusUnauthorized) }},
		{"no answer", func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) }},
		{"size unknown", func(w http.ResponseWriter, r *http.Request, _ []byte) {
			w.Header().Set("Content-Range", "bytes 0-9/*")
			w.WriteHeader(http.StatusPartialContent)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, base := libraryRelease(t), place(t)
			s := newSite(t, tt.how, bothWheels(t))
			var progress bytes.Buffer
			dir, err := r.Fetch(t.Context(), &progress)
			require.NoError(t, err)
			assert.NoError(t, r.verify(dir))
			assert.ElementsMatch(t, []string{
				"index sample-lib sample-pkg",
				"download sample-pkg==12.9.79", "download sample-lib==12.9.86",
			}, s.pipCalls(t))
			assert.Contains(t, progress.String(), "sample-lib==12.9.86: downloading the whole package\n")
			assert.Equal(t, []string{"12.9"}, names(t, base))
			assert.Empty(t, names(t, os.TempDir()))
		})
	}
}

// A server that promises one thing and sends another is an error that names
// the file, and leaves nothing.
func TestFetchByRangesFails(t *testing.T) {
	good := packedLibrary(t, librarySample)
	damaged := slices.Clone(good)
	damaged[bytes.Index(good, []byte("include/lib.h"))+len("include/lib.h")+4] ^= 0xff // in the packed text
	changed := packedLibrary(t, librarySample.with("lib.h", "int changed(void);\n"))
	theSum := libraryRelease(t).Libraries[0].Headers[0].SHA256
	// first changes the requests of the first block alone, whose headers come
	// after the directory.
	first := func(how answer) answer {
		return func(w http.ResponseWriter, r *http.Request, data []byte) {
			if strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
				how(w, r, data)
				return
			}
			inParts(w, r, data)
		}
	}
	ranged := func(w http.ResponseWriter, from, to, size int, data []byte) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data)
	}
	tests := []struct {
		name  string
		how   answer
		wheel []byte
		want  []string
	}{
		{"cut short", first(func(w http.ResponseWriter, _ *http.Request, data []byte) {
			ranged(w, 0, blockSize, len(data), data[:10])
		}), good, []string{"lib.h", theSum, "the server sent 10 of 65536 bytes"}},
		{"fewer bytes than asked for", first(func(w http.ResponseWriter, _ *http.Request, data []byte) {
			ranged(w, 0, 10, len(data), data[:10])
		}), good, []string{"lib.h", theSum, "asked for bytes 0 to 65535 of", "the server sent bytes 0 to 9 of"}},
		{"another place", first(func(w http.ResponseWriter, _ *http.Request, data []byte) {
			ranged(w, 1, 1+blockSize, len(data), data[1:1+blockSize])
		}), good, []string{"lib.h", theSum, "the server sent bytes 1 to 65536 of"}},
		{"the beginning missing", first(func(w http.ResponseWriter, _ *http.Request, data []byte) {
			ranged(w, 10, blockSize, len(data), data[10:blockSize])
		}), good, []string{"lib.h", theSum, "the server sent bytes 10 to 65535 of"}},
		{"another file meanwhile", first(func(w http.ResponseWriter, _ *http.Request, data []byte) {
			ranged(w, 0, blockSize, len(data)+1, data[:blockSize])
		}), good, []string{"lib.h", theSum, fmt.Sprintf("the server sent bytes 0 to 65535 of %d", len(good)+1)}},
		{"gone meanwhile", first(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.WriteHeader(http.StatusNotFound)
		}), good, []string{"lib.h", theSum, "the server answers 404 Not Found"}},
		{"end cut short", func(w http.ResponseWriter, _ *http.Request, data []byte) {
			ranged(w, len(data)-blockSize, len(data), len(data), data[len(data)-10:])
		}, good, []string{"the server sent 10 of 65536 bytes"}},
		{"not the end", func(w http.ResponseWriter, _ *http.Request, data []byte) {
			ranged(w, 0, blockSize, len(data), data[:blockSize])
		}, good, []string{"asked for its last 65536 bytes, the server sent bytes 0 to 65535 of"}},
		{"no archive", inParts, []byte(noise(blockSize)), []string{"is no whole archive"}},
		{"damaged header", inParts, damaged, []string{"lib.h", theSum, "is damaged"}},
		{"another header", inParts, changed, []string{"lib.h is not the pinned one: its sha256 is", sum([]byte("int changed(void);\n")), theSum}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, base := libraryRelease(t), place(t)
			sample.write(t, filepath.Join(base, "12.9"))
			s := newSite(t, tt.how, map[string][]byte{libraryWheel: tt.wheel})
			_, err := r.Fetch(t.Context(), nil)
			require.Error(t, err)
			for _, want := range append(tt.want, "CUDA 12.9: ", libraryWheel) {
				assert.ErrorContains(t, err, want)
			}
			assert.Equal(t, []string{"index sample-lib"}, s.pipCalls(t))
			assert.NoFileExists(t, filepath.Join(base, "12.9", "lib.h"))
			assert.Equal(t, []string{"12.9"}, names(t, base))
			assert.Empty(t, names(t, os.TempDir()))
		})
	}
}

// A directory that is longer than a block.
func TestFetchFromWheelOfManyFiles(t *testing.T) {
	many := inWheel(librarySample).with("nvidia/sample/lib/liblib.so", noise(librarySize))
	for i := range 2000 {
		many[fmt.Sprintf("nvidia/sample/include/more/header_%d.h", i)] = ""
	}
	r := libraryRelease(t)
	r.Libraries[0].SHA256 = sum(nil)
	sample.write(t, filepath.Join(place(t), "12.9"))
	s := newSite(t, inParts, map[string][]byte{libraryWheel: packed(t, many)})
	dir, err := r.Fetch(t.Context(), nil)
	require.NoError(t, err)
	assert.NoError(t, r.verify(dir))
	assert.LessOrEqual(t, s.requests.Load(), int64(7))
	assert.Less(t, s.sent.Load(), int64(512<<10))
}

// The parts make the file, in few requests when it is read from end to end.
func TestRemote(t *testing.T) {
	for name, size := range map[string]int{
		"one byte": 1, "one block": blockSize, "a byte more": blockSize + 1, "many blocks": 3<<20 + 5,
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(noise(size))
			s := newSite(t, inParts, map[string][]byte{sampleWheel: data})
			r, err := openRemote(t.Context(), locate(t.Context(), "sample-pkg==1")["sample-pkg"].URL)
			require.NoError(t, err)
			assert.EqualValues(t, size, r.size)
			for at := 0; at < size; at += 4096 {
				got := make([]byte, min(4096, size-at))
				_, err := r.ReadAt(got, int64(at))
				require.NoError(t, err)
				require.True(t, bytes.Equal(data[at:at+len(got)], got), at)
			}
			assert.LessOrEqual(t, s.requests.Load(), int64(8))
			assert.LessOrEqual(t, s.sent.Load(), int64(size+blockSize))
			if size < 1<<17 {
				assert.NoError(t, iotest.TestReader(io.NewSectionReader(r, 0, r.size), data))
			}
		})
	}
}
