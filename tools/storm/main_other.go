//go:build !cgo || !linux || !(amd64 || arm64)

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "storm: needs Linux, and a build with cgo")
	os.Exit(2)
}
