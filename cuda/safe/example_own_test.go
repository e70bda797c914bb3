//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A context of the program's own has its own limits, and is not reset with the primary
// context, which the runtime API and most libraries use.
func ExampleNewContext() {
	fmt.Println(alone())
	// Output: [7 7 7] <nil>
}

func alone() ([]int32, error) {
	devices, err := safe.Devices()
	if err != nil {
		return nil, err
	}
	x, err := safe.NewContextWith(devices[0], safe.ContextOptions{Flags: driver.CU_CTX_SCHED_BLOCKING_SYNC})
	if err != nil {
		return nil, err
	}
	defer x.Close() // destroys it
	if err := x.SetLimit(driver.CU_LIMIT_STACK_SIZE, 2048); err != nil {
		return nil, err
	}
	b, err := safe.NewBuffer[int32](x, 3)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	values := make([]int32, 3)
	return values, errors.Join(b.Fill(7), b.CopyToHost(values))
}

// foreign stands for other code, such as a library, that makes an event and memory.
func foreign(x *safe.Context) (e driver.CUevent, memory driver.CUdeviceptr, err error) {
	err = x.WithCurrent(func() error {
		return errors.Join(driver.CuEventCreate(&e, 0), driver.CuMemAlloc(&memory, 400))
	})
	return e, memory, err
}

// The Event destroys an event that other code has created.
func ExampleEventFromRaw() {
	fmt.Println(takeOver())
	// Output: true [1 1 1] <nil>
}

// The Buffer frees memory that other code has allocated, after the work that uses it.
func ExampleBufferFromRaw() {
	fmt.Println(takeOver())
	// Output: true [1 1 1] <nil>
}

func takeOver() (done bool, values []uint32, err error) {
	x, err := safe.Open(0)
	if err != nil {
		return false, nil, err
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return false, nil, err
	}
	defer s.Close()
	event, memory, err := foreign(x)
	if err != nil {
		return false, nil, err
	}
	e, err := safe.EventFromRaw(event, x)
	if err != nil {
		return false, nil, err
	}
	defer e.Close()
	b, err := safe.BufferFromRaw[uint32](x, memory, 3)
	if err != nil {
		return false, nil, err
	}
	defer b.Close()

	if err := errors.Join(b.FillAsync(s, 1), s.Record(e), e.Synchronize()); err != nil {
		return false, nil, err
	}
	done, err = e.Query()
	values = make([]uint32, 3)
	return done, values, errors.Join(err, b.CopyToHost(values))
}

// A borrowed event still belongs to the code that created it.
func ExampleBorrowEvent() {
	fmt.Println(borrowed())
	// Output: true <nil>
}

func borrowed() (done bool, err error) {
	x, err := safe.Open(0)
	if err != nil {
		return false, err
	}
	defer x.Close()
	event, memory, err := foreign(x)
	if err != nil {
		return false, err
	}
	defer x.WithCurrent(func() error { return errors.Join(driver.CuEventDestroy(event), driver.CuMemFree(memory)) })
	e, err := safe.BorrowEvent(event, x, nil)
	if err != nil {
		return false, err
	}
	defer e.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return false, err
	}
	defer s.Close()
	if err := errors.Join(s.Record(e), e.Synchronize()); err != nil {
		return false, err
	}
	return e.Query()
}
