// Package programs holds a short program for each library, which the comment of its raw package
// shows.
package programs
