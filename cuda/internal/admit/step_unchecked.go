//go:build !cudabind_lockorder

package admit

// Between marks the place between two steps whose order a test checks, with the build tag cudabind_lockorder.
func Between() {}
