//go:build !unix

package safe

// Where there are no Unix files, no pool is exported as one.
func closeOnExec(int32) {}
