//go:build unix

package safe

import "syscall"

// closeOnExec keeps programs that this one starts from having the file, unless they are given it.
func closeOnExec(fd int32) { syscall.CloseOnExec(int(fd)) }
