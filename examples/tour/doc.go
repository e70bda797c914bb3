// Package tour holds the Go of docs/: each page has a file of tests here, which
// run what the page shows.
package tour
