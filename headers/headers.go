// Package headers knows the CUDA headers that the bindings are generated from:
// which versions there are, how each is obtained and what its bytes must be.
//
// The headers are NVIDIA's and are not part of this module (README.md says
// why). They are fetched with pip as part of NVIDIA's own packages,
// checked against the sums of the embedded manifest and kept in [Dir].
package headers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// command runs tools/headers, in any folder.
const command = "go run github.com/cudabind/cudabind/tools/headers@latest"

// EnvDir is the environment variable that says where fetched headers are kept.
const EnvDir = "CUDABIND_HEADERS"

// Dir returns the folder that holds fetched headers, one sub-folder a version:
// $CUDABIND_HEADERS, else cudabind/headers in the user's cache folder. The
// folder need not exist.
func Dir() (string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		// A relative path would mean another folder in each package that
		// go generate visits.
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("%s=%s is a relative path: make it absolute", EnvDir, dir)
		}
		return filepath.Clean(dir), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep headers in (set %s): %w", EnvDir, err)
	}
	return filepath.Join(cache, "cudabind", "headers"), nil
}

// Find returns the folder of a fetched version. Every pinned header in it has
// the pinned sum. If one is missing or differs, the error matches
// [fs.ErrNotExist] and names the command that fetches the version.
func Find(version string) (dir string, err error) {
	r, err := Lookup(version)
	if err != nil {
		return "", err
	}
	return r.Find()
}

// Find is the function [Find] for this release, which need not be in the
// embedded manifest.
func (r Release) Find() (dir string, err error) {
	dir, err = r.dir()
	if err != nil {
		return "", err
	}
	if err := r.verify(dir); err != nil {
		return "", err
	}
	return dir, nil
}

// dir is the place of the release's headers, whether they are there or not.
func (r Release) dir() (string, error) {
	base, err := Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, r.Version), nil
}

// verify checks the sum of every pinned header in dir.
func (r Release) verify(dir string) error {
	for _, p := range r.packages() {
		if err := r.verifyPackage(p, dir); err != nil {
			return err
		}
	}
	return nil
}

func (r Release) verifyPackage(p Package, dir string) error {
	for _, h := range p.Headers {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(h.Path)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return r.lacks(p, dir, h.Path+" is missing")
		case err != nil:
			return fmt.Errorf("CUDA %s: %w", r.Version, err)
		case sum(data) != h.SHA256:
			return r.lacks(p, dir, h.Path+" is not the pinned one")
		}
	}
	return nil
}

// missing are the packages of which dir lacks a header.
func (r Release) missing(dir string) ([]Package, error) {
	var missing []Package
	for _, p := range r.packages() {
		switch err := r.verifyPackage(p, dir); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, p)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// lacks returns the error that headers of a package have to be fetched (again).
func (r Release) lacks(p Package, dir, reason string) error {
	fetch := r.Version
	if p.requested {
		fetch = "requested"
	}
	return &missingError{fmt.Sprintf("headers of CUDA %s are not in %s (%s); run: %s fetch %s", r.Version, dir, reason, command, fetch)}
}

// missingError says that headers have to be fetched.
type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }

func (e *missingError) Is(target error) bool { return target == fs.ErrNotExist }

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
