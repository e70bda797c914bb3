//go:build unix

package compile

import (
	"io/fs"
	"os"
	"syscall"
)

// owned tells whether a file belongs to the user of this process.
func owned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid == uint32(os.Geteuid())
}
