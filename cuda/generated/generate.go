// Package generated holds no code: it says how the raw packages below it are
// made. Each is named after the API it binds.
package generated

//go:generate go run ../../gen -cuda 13.5 -api driver -out driver -package driver -frozen driver/names.txt
