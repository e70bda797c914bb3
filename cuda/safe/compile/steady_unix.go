//go:build unix

package compile

import (
	"io/fs"
	"os"
	"syscall"
)

// steady tells whether only the user of this process and root can replace what the user makes in a
// folder.
func steady(dir fs.FileInfo) bool {
	s, ok := dir.Sys().(*syscall.Stat_t)
	return ok && (s.Uid == uint32(os.Geteuid()) || s.Uid == 0) && (dir.Mode().Perm()&0o002 == 0 || dir.Mode()&fs.ModeSticky != 0)
}

// shared tells whether the group of a folder can replace what the user makes in it. The folders around the cache may be
// shared, as they are by default where each user has a group, since the cache itself shows whose it is.
func shared(dir fs.FileInfo) bool {
	return dir.Mode().Perm()&0o020 != 0 && dir.Mode()&fs.ModeSticky == 0
}
