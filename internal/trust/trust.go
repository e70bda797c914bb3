// Package trust tells what a process may believe: its environment, and the files that others
// could have made or changed.
package trust

import "io/fs"

// Secure tells whether the process has rights that whoever started it may lack: the file of the
// program has the setuid or setgid bit, or capabilities. The kernel says so by AT_SECURE. No
// variable of the environment may then choose code that the process runs. In doubt Secure returns
// true. It returns false on systems other than Linux.
func Secure() bool { return secure() }

// Owned tells whether a file or folder belongs to the user of this process. It returns true on
// systems other than Unix.
func Owned(info fs.FileInfo) bool { return owned(info) }

// Private returns an error if a file or folder belongs to another user, or if another user can
// write to it. The error matches [fs.ErrPermission] and calls the file name. Private returns nil on
// systems other than Unix, where the mode does not say who can write.
func Private(info fs.FileInfo, name string) error { return private(info, name) }
