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
