package safe

import (
	"fmt"
	"reflect"
)

// The String methods call no driver and take no locks, so that objects can be printed at any
// time: closed, in a callback, and by a debugger.

// neverOpened is the text of a nil pointer and of a zero value.
func neverOpened(kind string) string { return kind + " (never opened)" }

// closedText ends the text of an object: it tells whether the object is closed.
func closedText(closed bool) string {
	if closed {
		return " (closed)"
	}
	return ""
}

// handleText is the text of an object with a handle.
func handleText[H ~uintptr | ~uint64](kind string, h H, d Device, closed bool) string {
	return fmt.Sprintf("%s %#x on %v%s", kind, uint64(h), d, closedText(closed))
}

// generic is the name of a type with its element type.
func generic[T any](kind string) string {
	return fmt.Sprintf("%s[%v]", kind, reflect.TypeFor[T]())
}
