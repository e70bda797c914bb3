package drivertest

// Replace writes another object into one, until undo: a program may do that.
func Replace[T any](object, other *T) (undo func()) {
	before := *object
	*object = *other
	return func() { *object = before }
}
