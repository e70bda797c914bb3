package pip

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// asking runs pip for one package after the other in one process: most of a short run is its start.
const asking = start + `
*args, names = args
for name in names.split():
    sys.argv = ["pip", *args, name]
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
`

// foundPattern is a line of pip's log: a file of the index, and its version.
var foundPattern = regexp.MustCompile(`(?m)Found link (\S+)(?: .*)?, version: (\S+)\r?$`)

// Index asks pip for the wheels of packages that fit one of the platforms, in every version. It
// downloads none, unlike [Client.Locate], for which pip before 25.2 downloads each wheel whole. It
// needs pip 21.2. Only pip's log tells the addresses, and it does not tell the sums. With an error
// come the wheels of the packages before the one that pip does not find. Without a connection pip
// retries once: its own five times take up to a minute.
func (c Client) Index(ctx context.Context, platforms []string, names ...string) ([]Wheel, error) {
	tmp, err := os.MkdirTemp("", "cudabind-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "log")
	failed := c.run(ctx, asking, []string{"index", "versions", "--log", file, "--retries", "1"}, platforms, strings.Join(names, " "))
	log, err := os.ReadFile(file)
	if failed != nil {
		err = failed
	}
	var wheels []Wheel
	for _, m := range foundPattern.FindAllSubmatch(log, -1) {
		w := Wheel{Version: string(m[2]), URL: string(m[1])}
		name, _, _ := strings.Cut(w.File(), "-")
		w.Name = normalized(name)
		wheels = append(wheels, w)
	}
	return wheels, err
}
