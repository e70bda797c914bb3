// Package drivertest is the C that the tests of the raw packages need and may
// not hold themselves: callbacks to hand to CUDA.
package drivertest
