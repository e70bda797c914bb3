//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

// Copy a rectangle of an image on the device to the same place of a cleared image.
func ExamplePitched() {
	err := cutOut()
	fmt.Println(err)
	// Output:
	// [0 0 0 0]
	// [0 6 7 0]
	// [0 10 11 0]
	// <nil>
}

func cutOut() (err error) {
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer x.Close()
	size := safe.Extent{Width: 4, Height: 3}
	picture, err := safe.NewPitched[uint8](x, size)
	if err != nil {
		return err
	}
	defer picture.Close()
	cut, err := safe.NewPitched[uint8](x, size)
	if err != nil {
		return err
	}
	defer cut.Close()

	pixels := []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	if err := errors.Join(picture.CopyFromHost(pixels), cut.Fill(0)); err != nil {
		return err
	}
	from, err := picture.Sub(safe.Position{X: 1, Y: 1}, safe.Extent{Width: 2, Height: 2})
	if err != nil {
		return err
	}
	to, err := cut.Sub(safe.Position{X: 1, Y: 1}, from.Extent())
	if err != nil {
		return err
	}
	if err := errors.Join(to.CopyFrom(from), cut.CopyToHost(pixels)); err != nil {
		return err
	}
	for y := range 3 {
		fmt.Println(pixels[4*y : 4*y+4])
	}
	return nil
}
