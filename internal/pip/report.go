package pip

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Wheel is a wheel that the index has.
type Wheel struct {
	Name    string // of the package, in lower case with hyphens
	Version string
	URL     string
	SHA256  string
}

// File is the name of the wheel's file.
func (w Wheel) File() string {
	u, err := url.Parse(w.URL)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// report is what pip says of an installation.
type report struct {
	Install []struct {
		Metadata struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"metadata"`
		DownloadInfo struct {
			URL         string `json:"url"`
			ArchiveInfo struct {
				Hashes struct {
					SHA256 string `json:"sha256"`
				} `json:"hashes"`
			} `json:"archive_info"`
		} `json:"download_info"`
	} `json:"install"`
}

// Locate asks pip which wheels fit requirements and one of the platforms, with
// those that they depend on if deps is true. It needs pip 22.2.
func (c Client) Locate(ctx context.Context, deps bool, platforms []string, requirements ...string) ([]Wheel, error) {
	tmp, err := os.MkdirTemp("", "cudabind-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "report.json")
	args := []string{"install", "--dry-run", "--ignore-installed", "--target", tmp, "--report", file}
	if !deps {
		args = append(args, "--no-deps")
	}
	if err := c.run(ctx, once, args, platforms, requirements...); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("pip's report: %w", err)
	}
	var wheels []Wheel
	for _, i := range r.Install {
		wheels = append(wheels, Wheel{normalized(i.Metadata.Name), i.Metadata.Version, i.DownloadInfo.URL, i.DownloadInfo.ArchiveInfo.Hashes.SHA256})
	}
	return wheels, nil
}

// normalized is the name of a package as our lists spell it.
func normalized(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
}
