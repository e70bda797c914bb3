package headers

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// link is where the file of a package can be had.
type link struct{ url, sha256 string }

// name is that of the file.
func (l link) name() string {
	u, err := url.Parse(l.url)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// report is what pip says of an installation.
type report struct {
	Install []struct {
		Metadata struct {
			Name string `json:"name"`
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

// locate asks pip for the links of requirements, by the names of their
// packages. What it does not find, an old pip among the reasons, is missing
// from the result: the download that then takes place says what is wrong.
func locate(ctx context.Context, requirements ...string) map[string]link {
	tmp, err := os.MkdirTemp("", "cudabind-*")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "report.json")
	args := []string{"install", "--dry-run", "--ignore-installed", "--target", tmp, "--report", file}
	if err := runPip(ctx, args, platforms, requirements...); err != nil {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil
	}
	links := map[string]link{}
	for _, i := range r.Install {
		l := link{i.DownloadInfo.URL, i.DownloadInfo.ArchiveInfo.Hashes.SHA256}
		links[normalized(i.Metadata.Name)] = l
	}
	return links
}

// normalized is the name of a package as the manifest spells it.
func normalized(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
}
