//go:build !unix

package compile

import "io/fs"

// private refuses nothing: the mode of a file does not say who can write to it. Windows keeps
// other users out of a user's cache folder.
func private(fs.FileInfo, string) error { return nil }
