//go:build unix

package safe

import (
	"os"
	"syscall"
)

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

// duplicate returns another descriptor of the file.
func duplicate(f *os.File) (int32, error) {
	c, err := connOf(f)
	if err != nil {
		return 0, err
	}
	return opened(func(fd *int32) error {
		var failed error
		err := c.Control(func(of uintptr) {
			n, err := syscall.Dup(int(of))
			*fd, failed = int32(n), err
		})
		if err != nil {
			return err
		}
		return failed
	})
}

func closeDescriptor(fd int32) { syscall.Close(int(fd)) }
