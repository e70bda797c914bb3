//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package driver_test

// Damaged files, which the system's loader must not see: it maps them, and the process ends where it
// touches what is not there.

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cutOff tells whether a segment of a library, of which only a part is there, lies outside of it.
func cutOff(whole []byte, part int) bool {
	f, err := elf.NewFile(bytes.NewReader(whole))
	if err != nil {
		return false
	}
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD && (s.Off > uint64(part) || s.Filesz > uint64(part)-s.Off) {
			return true
		}
	}
	return false
}

// TestCutOffLibrary opens a driver that is cut off at many lengths. It tells no version, so that none of
// them stays open.
func TestCutOffLibrary(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		dir, file := library(t, sickDriver)
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		refused := 0
		for part := 0; part < len(whole); part += 61 {
			file := filepath.Join(dir, fmt.Sprint(part))
			require.NoError(t, os.WriteFile(file, whole[:part], 0o600))
			err := driver.Open(file)
			requireLibraryError(t, err, file)
			if part >= 64 && cutOff(whole, part) {
				refused++
				assert.ErrorContains(t, err, file+": this library is damaged: ")
			}
		}
		assert.Greater(t, refused, 20)
	})
}

// TestDamagedHeaders opens drivers whose segments are not where they should be.
func TestDamagedHeaders(t *testing.T) {
	segment := func(kind elf.ProgType, change func(s *elf.Prog64)) func(*elf.Header64, []elf.Prog64) {
		return func(_ *elf.Header64, all []elf.Prog64) {
			for i := range all {
				if elf.ProgType(all[i].Type) == kind {
					change(&all[i])
					if kind != elf.PT_LOAD || i > 0 {
						return
					}
				}
			}
		}
	}
	for _, bad := range []struct {
		name   string
		damage func(*elf.Header64, []elf.Prog64)
		says   string
	}{
		{"list beyond the end", func(h *elf.Header64, _ []elf.Prog64) { h.Phoff = 1 << 40 }, "its list of segments is not in the file"},
		{"list at the last address", func(h *elf.Header64, _ []elf.Prog64) { h.Phoff = math.MaxUint64 - 8 }, "its list of segments is not in the file"},
		{"long list", func(h *elf.Header64, _ []elf.Prog64) { h.Phnum = math.MaxUint16 }, "its list of segments has another form"},
		{"list of other entries", func(h *elf.Header64, _ []elf.Prog64) { h.Phentsize = 8 }, "its list of segments has another form"},
		{"segment beyond the end", segment(elf.PT_LOAD, func(s *elf.Prog64) { s.Off += 1 << 30 }), "but a segment of "},
		{"segment of any size", segment(elf.PT_LOAD, func(s *elf.Prog64) { s.Filesz, s.Memsz = math.MaxUint64, math.MaxUint64 }), "but a segment of "},
		{"more in the file than in memory", segment(elf.PT_LOAD, func(s *elf.Prog64) { s.Memsz = 1 }), "has no place in memory"},
		{"segment over another", segment(elf.PT_LOAD, func(s *elf.Prog64) { s.Vaddr = 0x100 }), "its segment at 0x100 has no place in memory"},
		{"segment without addresses", segment(elf.PT_LOAD, func(s *elf.Prog64) { s.Vaddr = math.MaxUint64 - 0xfff }), "has no place in memory"},
		{"dynamic segment elsewhere", segment(elf.PT_DYNAMIC, func(s *elf.Prog64) { s.Vaddr += 1 << 30 }), "its segment PT_DYNAMIC lies outside of those that are loaded"},
		{"dynamic segment in what cannot be written", segment(elf.PT_DYNAMIC, func(s *elf.Prog64) { s.Vaddr = 8 }), "its segment PT_DYNAMIC lies outside"},
		{"dynamic segment of something else", segment(elf.PT_DYNAMIC, func(s *elf.Prog64) { s.Filesz = 16 }), "its dynamic segment is damaged"},
		{"note elsewhere", segment(elf.PT_NOTE, func(s *elf.Prog64) { s.Vaddr = 1 << 40 }), "its segment PT_NOTE lies outside"},
		{"protected memory elsewhere", segment(elf.PT_GNU_RELRO, func(s *elf.Prog64) { s.Memsz = 1 << 40 }), "its segment PT_GNU_RELRO lies outside"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				_, file := library(t, sickDriver)
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, withHeaders(t, data, bad.damage), 0o600))
				requireLibraryError(t, driver.Open(file), file, file+": this library is damaged: ", bad.says)
			})
		})
	}
}

// withHeaders changes the header of a library and its list of segments.
func withHeaders(t *testing.T, data []byte, change func(*elf.Header64, []elf.Prog64)) []byte {
	t.Helper()
	var head elf.Header64
	n, err := binary.Decode(data, binary.LittleEndian, &head)
	require.NoError(t, err)
	at := head.Phoff
	segments := make([]elf.Prog64, head.Phnum)
	_, err = binary.Decode(data[at:], binary.LittleEndian, segments)
	require.NoError(t, err)
	change(&head, segments)
	_, err = binary.Encode(data[:n], binary.LittleEndian, head)
	require.NoError(t, err)
	_, err = binary.Encode(data[at:], binary.LittleEndian, segments)
	require.NoError(t, err)
	return data
}

// TestNeededLibraryIsDamaged: the system's loader would map it, too.
func TestNeededLibraryIsDamaged(t *testing.T) {
	for _, needed := range []struct{ name, link string }{
		{"by its name", "-Wl,-soname,libpart.so"},
		{"by its path", "-Wl,--as-needed"}, // without a name it is needed as it was linked
	} {
		t.Run(needed.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				dir, file := library(t, goodDriver)
				part := filepath.Join(dir, "libpart.so")
				compileWith(t, part, "int part(void) { return 12040; }", needed.link)
				compileWith(t, file, "int part(void); int cuDriverGetVersion(int *version) { *version = part(); return 999; }", part, "-Wl,-rpath,$ORIGIN")
				requireLibraryError(t, driver.Open(file), file, "returned 999")
				info, err := os.Stat(part)
				require.NoError(t, err)
				require.NoError(t, os.Truncate(part, info.Size()/2))
				requireLibraryError(t, driver.Open(file), file, file+" needs "+part+": this library is damaged: it has ")
				require.NoError(t, os.Remove(part))
				requireLibraryError(t, driver.Open(file), file, "libpart.so: cannot open shared object file")
			})
		})
	}
}

// TestUnfitFindsNoDamage in the libraries of this system.
func TestUnfitFindsNoDamage(t *testing.T) {
	n := 0
	for _, pattern := range []string{"/lib/*-linux-gnu/*.so*", "/usr/lib64/*.so*", "/usr/lib/*.so*", "/usr/*-linux-gnu/lib/*.so*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			assert.NotContains(t, driver.Unfit(file), "damaged")
			n++
		}
	}
	t.Logf("%d libraries", n)
}

// FuzzUnfit: whatever the file is, no segment of a library that passes lies outside of it.
func FuzzUnfit(f *testing.F) {
	_, file := library(f, goodDriver)
	whole, err := os.ReadFile(file)
	require.NoError(f, err)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(whole[:64])
	f.Add([]byte("no library"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(dir, "library.so")
		require.NoError(t, os.WriteFile(file, data, 0o600))
		reason := driver.Unfit(file)
		if cutOff(data, len(data)) {
			assert.NotEmpty(t, reason)
		}
	})
}
