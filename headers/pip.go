package headers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cudabind/cudabind/internal/pip"
)

var pipClient = pip.Client{
	What:    "the headers",
	Instead: "take the headers of an installed toolkit (gen -headers DIR/include, or headers fetch -from DIR VERSION)",
}

// wheel is the file of a package.
type wheel struct {
	name   string
	sha256 string // of the whole file: computed from it, or as the package index states it
	whole  bool   // downloaded, so that sha256 was computed
	size   int64
	io.ReaderAt
}

// locate asks pip for the wheels of requirements, by the names of their
// packages. What it does not find, an old pip among the reasons, is missing
// from the result: the download that then takes place reports the error.
func locate(ctx context.Context, requirements ...string) map[string]pip.Wheel {
	found, _ := pipClient.Locate(ctx, false, platforms, requirements...)
	wheels := map[string]pip.Wheel{}
	for _, w := range found {
		wheels[w.Name] = w
	}
	return wheels
}

// open reads a wheel in parts, if its link is good for that. If not, pip
// downloads the wheel that fits the requirement and one of the platforms.
func open(ctx context.Context, at pip.Wheel, progress io.Writer, requirement string, platforms ...string) (wheel, error) {
	r, err := openRemote(ctx, at.URL)
	if err == nil {
		return wheel{at.File(), at.SHA256, false, r.size, r}, nil
	}
	if !errors.Is(err, errNoRanges) {
		return wheel{}, fmt.Errorf("%s: %w", at.File(), err)
	}
	say(progress, "%s: downloading the whole package", requirement)
	return download(ctx, requirement, platforms...)
}

// download lets pip download the wheel of a requirement that fits one of the
// platforms.
func download(ctx context.Context, requirement string, platforms ...string) (wheel, error) {
	tmp, err := os.MkdirTemp("", "cudabind-*")
	if err != nil {
		return wheel{}, err
	}
	defer os.RemoveAll(tmp)
	file, err := pipClient.Download(ctx, tmp, platforms, requirement)
	if err != nil {
		return wheel{}, err
	}
	data, err := os.ReadFile(file)
	return wheel{filepath.Base(file), sum(data), true, int64(len(data)), bytes.NewReader(data)}, err
}
