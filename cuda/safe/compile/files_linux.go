package compile

import (
	"io/fs"
	"syscall"
)

const nonblock = syscall.O_NONBLOCK

// changed is when the content or the name of a file was last changed. Programs cannot set it.
func changed(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ctim.Nano()
	}
	return 0
}
