//go:build unix

package compile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// owned tells whether a file belongs to the user of this process.
func owned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid == uint32(os.Geteuid())
}

// private refuses what another user owns or can write to: code from there would run as ours.
func private(info fs.FileInfo, name string) error {
	if !owned(info) {
		return fmt.Errorf("%w: the cache %s belongs to another user: remove it, or set Options.CacheFolder or Options.NoCache", fs.ErrPermission, name)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%w: other users can write to the cache %s (mode %04o): run chmod 700 on it, or set Options.CacheFolder or Options.NoCache", fs.ErrPermission, name, mode)
	}
	return nil
}
