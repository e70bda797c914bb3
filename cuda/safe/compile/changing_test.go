package compile

import (
	"io/fs"
	"testing/fstest"
)

// changing is a file system whose a.h has another text whenever it is read.
type changing struct{ text func() string }

func (c changing) Open(name string) (fs.File, error) {
	return fstest.MapFS{"a.h": {Data: []byte(c.text())}}.Open(name)
}
