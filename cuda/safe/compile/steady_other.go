//go:build !unix

package compile

import "io/fs"

// steady is true: the mode of a folder does not say who can write to it. Windows keeps other users
// out of a user's folders.
func steady(fs.FileInfo) bool { return true }

func shared(fs.FileInfo) bool { return false }
