package sim

import "embed"

// go mod vendor copies folders without Go files only if they are embedded: [Build] compiles these.
//
//go:embed c nvrtc
var _ embed.FS
