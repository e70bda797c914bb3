// Package tour holds the Go code of docs/: each page has a file of tests here, which
// run what the page shows.
package tour
