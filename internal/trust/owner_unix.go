//go:build unix

package trust

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

func owned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid == uint32(os.Geteuid())
}

func private(info fs.FileInfo, name string) error {
	if !owned(info) {
		return fmt.Errorf("%w: %s belongs to another user", fs.ErrPermission, name)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%w: other users can write to %s (mode %04o): run chmod go-w on it", fs.ErrPermission, name, mode)
	}
	return nil
}
