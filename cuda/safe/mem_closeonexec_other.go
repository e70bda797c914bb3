//go:build !unix

package safe

import (
	"errors"
	"os"
)

// opened returns the file descriptor that open creates. This system has none.
func opened(open func(fd *int32) error) (int32, error) {
	fd := int32(-1)
	return fd, open(&fd)
}

func duplicate(*os.File) (int32, error) { return 0, errors.ErrUnsupported }

func closeDescriptor(int32) {}
