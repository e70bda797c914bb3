// Package cloop has loops of C that call functions of the CUDA driver: what the
// bindings are compared with. Each loop is given the functions' addresses, so
// that both sides call the same code of the same library.
package cloop
