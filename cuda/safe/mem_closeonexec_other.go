//go:build !unix

package safe

// opened returns the file descriptor that open creates. This system has none.
func opened(open func(fd *int32) error) (int32, error) {
	fd := int32(-1)
	return fd, open(&fd)
}
