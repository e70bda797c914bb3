package compile

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/cudabind/cudabind/cuda/safe"
)

// maxText is the size of the largest source or header that is read.
const maxText = 64 << 20

// readFile reads a regular file of at most limit bytes. It opens nothing else: opening a pipe may
// wait for ever, and opening a device may do something.
func readFile(file string, limit int64) (string, fs.FileInfo, error) {
	info, err := os.Stat(file)
	if err == nil {
		err = readable(info, file, limit)
	}
	if err != nil {
		return "", nil, err
	}
	f, err := os.OpenFile(file, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return "", nil, err
	}
	return readOpen(f, file, limit)
}

// readFS reads a regular file of a file system.
func readFS(files fs.FS, name string) (string, error) {
	info, err := fs.Stat(files, name)
	if err == nil {
		err = readable(info, name, maxText)
	}
	if err != nil {
		return "", err
	}
	f, err := files.Open(name)
	if err != nil {
		return "", err
	}
	text, _, err := readOpen(f, name, maxText)
	return text, err
}

// readOpen reads an open file and closes it.
func readOpen(f fs.File, name string, limit int64) (string, fs.FileInfo, error) {
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = readable(info, name, limit)
	}
	if err != nil {
		return "", nil, err
	}
	var text strings.Builder
	text.Grow(int(max(info.Size(), 0))) // a file system need not know it
	n, err := io.Copy(&text, io.LimitReader(f, min(limit, math.MaxInt64-1)+1))
	if err == nil && n > limit {
		err = tooLarge(name, limit)
	}
	return text.String(), info, err
}

func readable(info fs.FileInfo, name string, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is no regular file", safe.ErrInvalidArgument, name)
	case info.Size() > limit:
		return tooLarge(name, limit)
	}
	return nil
}

func tooLarge(name string, limit int64) error {
	return fmt.Errorf("%w: %s is larger than %d MiB", safe.ErrRange, name, limit>>20)
}
