//go:build unix

package safe

import "syscall"

// opened returns the file descriptor that open creates, with close-on-exec set: child
// processes do not inherit it unless the program passes it on. ForkLock keeps one from
// being started before the flag is set.
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
