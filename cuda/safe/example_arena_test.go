//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

// copies returns copies of vectors of any length, made by the device. Each piece of work
// takes its memory from the arena, and gives it back at its end.
func copies(s *safe.Stream, a *safe.Arena, vectors [][]float32) ([][]float32, error) {
	out := make([][]float32, len(vectors))
	for i, v := range vectors {
		out[i] = make([]float32, len(v))
		err := s.Scope(func(c *safe.Scope) error {
			defer a.Reset()
			from, err := safe.NewBufferIn[float32](a, len(v))
			if err != nil {
				return err
			}
			to, err := safe.NewBufferIn[float32](a, len(v))
			if err != nil {
				return err
			}
			if err := safe.CopyFromSlice(c, from, v); err != nil {
				return err
			}
			if err := to.CopyFromAsync(s, from); err != nil {
				return err
			}
			return safe.CopyToSlice(c, out[i], to)
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func ExampleNewArena() {
	err := withStream(func(s *safe.Stream) error {
		a, err := safe.NewArena(s, 1<<20)
		if err != nil {
			return err
		}
		defer a.Close()
		out, err := copies(s, a, [][]float32{{1, 2}, {3}, {}})
		fmt.Println(out)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [[1 2] [3] []]
}

func withStream(f func(*safe.Stream) error) error {
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer x.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}
