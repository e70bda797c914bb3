//go:build (cgo || cudabind_nocgo) && (amd64 || arm64)

// Files that are mapped into memory, and registered. Both drivers: the simulated one ends the process
// where CUDA hangs.

package safe_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	mayRead  = syscall.PROT_READ
	mayWrite = syscall.PROT_READ | syscall.PROT_WRITE
)

// mapFile maps a file of [weights] until the end of the test.
func mapFile(t testing.TB, file string, prot, flags int) []byte {
	t.Helper()
	how := os.O_RDONLY
	if flags == syscall.MAP_SHARED && prot == mayWrite {
		how = os.O_RDWR
	}
	f, err := os.OpenFile(file, how, 0)
	require.NoError(t, err)
	defer f.Close()
	m, err := syscall.Mmap(int(f.Fd()), 0, weightSize, prot, flags)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(m)) })
	return m
}

// weightSize is a whole number of pages, of any size that there is.
const weightSize = 3 << 16

// weights writes a file of weightSize bytes in a folder.
func weights(t testing.TB, folder string) string {
	t.Helper()
	f, err := os.CreateTemp(folder, "weights")
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(f.Name()) })
	_, err = f.Write(bytes.Repeat([]byte{7}, weightSize))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.Name()
}

// diskFolder returns a folder on a disk if there is one.
func diskFolder(t testing.TB) string {
	t.Helper()
	if folder := t.TempDir(); onDisk(t, folder) {
		return folder
	}
	return "testdata"
}

// onDisk tells whether a file is not one in memory.
func onDisk(t testing.TB, file string) bool {
	t.Helper()
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var s syscall.Statfs_t
	require.NoError(t, syscall.Statfs(file, &s))
	return uint32(s.Type) != tmpfs && uint32(s.Type) != ramfs
}

// TestRegisterMappedFile: memory of files is registered, or refused where CUDA would hang or does not say why.
func TestRegisterMappedFile(t *testing.T) {
	x := open(t, 0)
	const (
		hangs    = "is mapped with MAP_PRIVATE: map it with MAP_SHARED, or copy it to a Pinned"
		unshared = "the memory is read-only: map the file with MAP_SHARED and set ReadOnly, or copy it to a Pinned"
		noWrites = "the memory is read-only: set ReadOnly"
		written  = "the memory is of a file on a disk, which Linux since 6.5 lets no device write: set ReadOnly, or copy it to a Pinned"
	)
	for place, file := range map[string]string{"disk": weights(t, diskFolder(t)), "memory": weights(t, "/dev/shm")} {
		disk := onDisk(t, file)
		t.Logf("%s: %s, on a disk: %v", place, file, disk)
		for _, test := range []struct {
			name        string
			prot, flags int
			readOnly    bool
			err         error
			onDisk      string
			inMemory    string
		}{
			{"private, read-only, ReadOnly", mayRead, syscall.MAP_PRIVATE, true, safe.ErrInvalidArgument, hangs, ""},
			{"private, writable, ReadOnly", mayWrite, syscall.MAP_PRIVATE, true, safe.ErrInvalidArgument, hangs, ""},
			{"private, read-only", mayRead, syscall.MAP_PRIVATE, false, driver.CUDA_ERROR_INVALID_VALUE, unshared, noWrites},
			{"private, writable", mayWrite, syscall.MAP_PRIVATE, false, nil, "", ""},
			{"shared, read-only, ReadOnly", mayRead, syscall.MAP_SHARED, true, nil, "", ""},
			{"shared, writable, ReadOnly", mayWrite, syscall.MAP_SHARED, true, nil, "", ""},
			{"shared, read-only", mayRead, syscall.MAP_SHARED, false, driver.CUDA_ERROR_INVALID_VALUE, noWrites, noWrites},
			{"shared, writable", mayWrite, syscall.MAP_SHARED, false, driver.CUDA_ERROR_INVALID_VALUE, written, ""},
		} {
			t.Run(place+", "+test.name, func(t *testing.T) {
				why := test.inMemory
				if disk {
					why = test.onDisk
				}
				h, err := safe.RegisterPinnedWith(x, mapFile(t, file, test.prot, test.flags), safe.PinnedOptions{ReadOnly: test.readOnly})
				if test.onDisk == written && err == nil { // an older Linux, or the simulated driver
					why = ""
				}
				if why == "" {
					require.NoError(t, err)
					checkUploaded(t, x, h)
					require.NoError(t, h.Close())
					return
				}
				require.ErrorIs(t, err, test.err)
				assert.ErrorContains(t, err, why)
			})
		}
	}
}

// checkUploaded copies h, which has sevens only, to the device and back.
func checkUploaded(t *testing.T, x *safe.Context, h *safe.Pinned[byte]) {
	t.Helper()
	s, b := stream(t, x), buffer[byte](t, x, h.Len())
	require.NoError(t, b.CopyFromHostAsync(s, h))
	got, err := b.Download()
	require.NoError(t, err)
	assert.Equal(t, bytes.Repeat([]byte{7}, h.Len()), got)
}

// TestCopyFromMappedFile: copies that need no registration take every mapping of a file.
func TestCopyFromMappedFile(t *testing.T) {
	x := open(t, 0)
	file := weights(t, diskFolder(t))
	s, b := stream(t, x), buffer[byte](t, x, weightSize)
	for name, flags := range map[string]int{"private": syscall.MAP_PRIVATE, "shared": syscall.MAP_SHARED} {
		for way, load := range map[string]func(m []byte) error{
			"CopyFromHost": b.CopyFromHost,
			"Scope":        func(m []byte) error { return s.Scope(func(c *safe.Scope) error { return safe.CopyFromSlice(c, b, m) }) },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				require.NoError(t, b.Fill(0))
				require.NoError(t, load(mapFile(t, file, mayRead, flags)))
				got, err := b.Download()
				require.NoError(t, err)
				assert.Equal(t, bytes.Repeat([]byte{7}, weightSize), got)
			})
		}
	}
}

// TestRegisterMappedParts: what else is mapped into a process.
func TestRegisterMappedParts(t *testing.T) {
	x := open(t, 0)
	file := weights(t, diskFolder(t))
	disk, page := onDisk(t, file), os.Getpagesize()
	for _, test := range []struct {
		name  string
		hangs bool
		make  func(t *testing.T) []byte
	}{
		{"Go memory", false, func(*testing.T) []byte { return bytes.Repeat([]byte{7}, weightSize) }},
		{"anonymous memory", false, func(t *testing.T) []byte {
			m, err := syscall.Mmap(-1, 0, weightSize, mayWrite, syscall.MAP_PRIVATE|syscall.MAP_ANON)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, syscall.Munmap(m)) })
			copy(m, bytes.Repeat([]byte{7}, len(m)))
			return m
		}},
		{"/dev/zero", false, func(t *testing.T) []byte {
			m := mapFile(t, "/dev/zero", mayWrite, syscall.MAP_PRIVATE)
			copy(m, bytes.Repeat([]byte{7}, len(m)))
			return m
		}},
		{"a deleted file", true, func(t *testing.T) []byte {
			gone := weights(t, diskFolder(t))
			m := mapFile(t, gone, mayRead, syscall.MAP_PRIVATE)
			require.NoError(t, os.Remove(gone))
			return m
		}},
		{"a file with a space in its name", true, func(t *testing.T) []byte {
			spaced := weights(t, diskFolder(t))
			require.NoError(t, os.Rename(spaced, spaced+" (deleted) x"))
			t.Cleanup(func() { os.Remove(spaced + " (deleted) x") })
			return mapFile(t, spaced+" (deleted) x", mayRead, syscall.MAP_PRIVATE)
		}},
		{"pages that were written to", true, func(t *testing.T) []byte {
			m := mapFile(t, file, mayWrite, syscall.MAP_PRIVATE)
			for i := range m {
				m[i] = 7
			}
			return m
		}},
		{"a part of the mapping", true, func(t *testing.T) []byte {
			return mapFile(t, file, mayRead, syscall.MAP_PRIVATE)[page+100 : page+200]
		}},
		{"one of several mappings", true, func(t *testing.T) []byte {
			m := mapFile(t, file, mayWrite, syscall.MAP_SHARED)
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			at, _, code := syscall.Syscall6(syscall.SYS_MMAP, uintptr(unsafe.Pointer(&m[page])), uintptr(page), mayRead,
				syscall.MAP_PRIVATE|syscall.MAP_FIXED, f.Fd(), 0)
			require.Zero(t, code)
			require.Equal(t, uintptr(unsafe.Pointer(&m[page])), at)
			return m
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := safe.RegisterPinnedWith(x, test.make(t), safe.PinnedOptions{ReadOnly: true})
			if test.hangs && disk {
				require.ErrorIs(t, err, safe.ErrInvalidArgument)
				assert.ErrorContains(t, err, "CUDA would hang")
				return
			}
			require.NoError(t, err)
			checkUploaded(t, x, h)
			require.NoError(t, h.Close())
		})
	}
}

// BenchmarkMappedFile measures ways from a file, which is in the system's cache, to the device.
func BenchmarkMappedFile(b *testing.B) {
	size := 1 << 20
	if onGPU {
		size = 1 << 30
	}
	file := filepath.Join(diskFolder(b), "weights")
	require.NoError(b, os.WriteFile(file, bytes.Repeat([]byte{7}, size), 0o666))
	x := open(b, 0)
	to, s, piece := buffer[byte](b, x, size), stream(b, x), host[byte](b, x, size)
	inMapping := func(do func(m []byte) error) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		m, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			return err
		}
		return errors.Join(do(m), syscall.Munmap(m))
	}
	for _, way := range []struct {
		name string
		load func() error
	}{
		{"mapped, registered", func() error {
			return inMapping(func(m []byte) error {
				h, err := safe.RegisterPinnedWith(x, m, safe.PinnedOptions{ReadOnly: true})
				if err != nil {
					return err
				}
				return errors.Join(to.CopyFromHostAsync(s, h), h.Close())
			})
		}},
		{"mapped, copied by CopyFromHost", func() error { return inMapping(to.CopyFromHost) }},
		{"ReadFile, CopyFromHost", func() error {
			all, err := os.ReadFile(file)
			return errors.Join(err, to.CopyFromHost(all))
		}},
		{"ReadFull into a Pinned", func() error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			if _, err := io.ReadFull(f, piece.Data()); err != nil {
				return err
			}
			return errors.Join(to.CopyFromHostAsync(s, piece), s.Synchronize())
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				require.NoError(b, way.load())
			}
		})
	}
}

// BenchmarkRegisterPinned measures the check of memory that is to be registered with ReadOnly, beside none.
func BenchmarkRegisterPinned(b *testing.B) {
	x, memory := open(b, 0), make([]byte, 1<<20)
	for _, o := range []safe.PinnedOptions{{}, {ReadOnly: true}} {
		b.Run(fmt.Sprintf("ReadOnly=%v", o.ReadOnly), func(b *testing.B) {
			for b.Loop() {
				h, err := safe.RegisterPinnedWith(x, memory, o)
				require.NoError(b, errors.Join(err, h.Close()))
			}
		})
	}
}
