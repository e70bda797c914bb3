// Package drivertest is what the tests of several packages share: callbacks in C to hand to CUDA,
// which these packages may not hold themselves, and calls with arguments that make no sense.
package drivertest
