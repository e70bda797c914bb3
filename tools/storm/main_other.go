//go:build !((cgo || cudabind_nocgo) && linux && (amd64 || arm64))

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "storm: needs Linux, and a build with cgo or the tag cudabind_nocgo")
	os.Exit(2)
}
