//go:build !unix

package safe

// opened is the file that open makes. Where there are no Unix files there is none.
func opened(open func(fd *int32) error) (int32, error) {
	fd := int32(-1)
	return fd, open(&fd)
}
