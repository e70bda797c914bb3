//go:build unix

package safe

import "syscall"

// opened is the file that open makes. Programs that this one starts do not have it,
// unless they are given it: none is started before that is said.
func opened(open func(fd *int32) error) (int32, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd := int32(-1)
	err := open(&fd)
	if err == nil {
		syscall.CloseOnExec(int(fd))
	}
	return fd, err
}
