package safe

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"
)

// A region is a part of the process's address space.
type region struct {
	from, to uintptr
	perms    string // "rw-p": writable and private
	device   string // of its file: "254:0", with major and minor number
	file     string // its path; "" for memory without a file
}

// registrable checks host memory that is to be registered with ReadOnly: cuMemHostRegister never
// returns for a private mapping of a file on a disk. It was measured on an H200 with driver 580,
// for read-only and for writable mappings. Files in memory and shared mappings work.
func registrable(op string, host unsafe.Pointer, size uint64) error {
	all, err := regions(host, size)
	if err != nil {
		return wrap(op, err)
	}
	for _, m := range all {
		if m.perms[3] != 'p' || m.file == "" {
			continue
		}
		kind, err := m.fileSystem()
		switch {
		case err != nil:
			return wrap(op, err)
		case !memoryFileSystems[kind]:
			return refuse(op, ErrInvalidArgument, "CUDA would hang, as %s is mapped with MAP_PRIVATE: map it with MAP_SHARED, or copy it to a Pinned", m.file)
		}
	}
	return nil
}

// whyNotRegistered says what the caller may do if cuMemHostRegister refuses memory without ReadOnly, ""
// if that is unknown.
func whyNotRegistered(host unsafe.Pointer, size uint64) string {
	all, _ := regions(host, size)
	for _, m := range all {
		switch kind, err := m.fileSystem(); {
		case m.perms[1] == 'w' && m.perms[3] == 's' && m.file != "" && err == nil && !memoryFileSystems[kind]:
			return "the memory is of a file on a disk, which Linux since 6.5 lets no device write: set ReadOnly, or copy it to a Pinned"
		case m.perms[1] == 'w':
		case registrable("", host, size) != nil:
			return "the memory is read-only: map the file with MAP_SHARED and set ReadOnly, or copy it to a Pinned"
		default:
			return "the memory is read-only: set ReadOnly"
		}
	}
	return ""
}

// memoryFileSystems are the file systems that keep files in memory, of which "" stands for the kernel's own.
var memoryFileSystems = map[string]bool{"": true, "tmpfs": true, "devtmpfs": true, "ramfs": true, "hugetlbfs": true}

// fileSystem returns the type of the file system of the mapping's file, such as "ext4".
func (m *region) fileSystem() (string, error) {
	for _, own := range []string{"/memfd:", "/SYSV", "/anon_hugepage", "/dev/zero (deleted)"} {
		if strings.HasPrefix(m.file, own) {
			return "", nil
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		mount, source, _ := strings.Cut(line, " - ")
		if at, kind := strings.Fields(mount), strings.Fields(source); len(at) > 2 && len(kind) > 0 && at[2] == m.device {
			return kind[0], nil
		}
	}
	return "unknown", nil
}

// regions returns the regions that contain a part of size bytes at host.
func regions(host unsafe.Pointer, size uint64) (found []region, err error) {
	list, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	from := uintptr(host)
	for line := range strings.Lines(string(list)) {
		m, err := parseRegion(line)
		if err != nil {
			return nil, err
		}
		if m.from < from+uintptr(size) && from < m.to {
			found = append(found, m)
		}
	}
	return found, nil
}

// parseRegion reads a line of /proc/self/maps.
func parseRegion(line string) (m region, err error) {
	f := strings.Fields(line) // addresses, permissions, offset, device, inode, path
	if len(f) < 5 || len(f[1]) != 4 {
		return m, fmt.Errorf("a line in /proc/self/maps that is not understood: %q", line)
	}
	from, to, _ := strings.Cut(f[0], "-")
	major, minor, _ := strings.Cut(f[3], ":")
	var n [4]uint64
	for i, hex := range []string{from, to, major, minor} {
		if n[i], err = strconv.ParseUint(hex, 16, 64); err != nil {
			return m, fmt.Errorf("a line in /proc/self/maps that is not understood: %q: %w", line, err)
		}
	}
	m = region{from: uintptr(n[0]), to: uintptr(n[1]), perms: f[1], device: fmt.Sprintf("%d:%d", n[2], n[3])}
	if f[4] != "0" { // the inode
		m.file = strings.Join(f[5:], " ")
	}
	return m, nil
}
