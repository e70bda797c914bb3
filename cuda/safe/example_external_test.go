//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package safe_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cudabind/cudabind/cuda/safe"
)

// A stream waits until another API has written to the memory, works on it and signals back.
func ExampleStream_WaitExternal() {
	if onGPU { // nothing here exports memory
		fmt.Println("2 2 <nil>")
		return
	}
	fmt.Println(work())
	// Output: 2 2 <nil>
}

// work gets memory and a timeline semaphore of another API, which file descriptors stand
// for. In the simulated driver these are files.
func work() (value, written uint64, err error) {
	memory, err := export(8192)
	if err != nil {
		return 0, 0, err
	}
	defer memory.Close()
	semaphore, err := export(8)
	if err != nil {
		return 0, 0, err
	}
	defer semaphore.Close()
	if err := between(memory, semaphore); err != nil {
		return 0, 0, err
	}
	word := make([]byte, 8)
	_, err = semaphore.ReadAt(word, 0)
	value = binary.NativeEndian.Uint64(word)
	if _, err := memory.ReadAt(word, 0); err != nil {
		return 0, 0, err
	}
	return value, binary.NativeEndian.Uint64(word), err
}

// between does the work of CUDA.
func between(memory, semaphore *os.File) error {
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := safe.ImportExternalMemory(x, memory, 8192, safe.ExternalMemoryOptions{})
	if err != nil {
		return err
	}
	defer m.Close()
	b, err := safe.NewExternalBuffer[uint32](m, 0, 1)
	if err != nil {
		return err
	}
	defer b.Close()
	e, err := safe.ImportExternalSemaphore(x, semaphore, safe.ExternalSemaphoreOptions{Timeline: true})
	if err != nil {
		return err
	}
	defer e.Close()
	err = errors.Join(
		s.WaitExternal(safe.SemaphoreOp{Semaphore: e, Value: 1}),
		b.FillAsync(s, 2),
		s.SignalExternal(safe.SemaphoreOp{Semaphore: e, Value: 2}),
	)
	_, signaled := semaphore.WriteAt(binary.NativeEndian.AppendUint64(nil, 1), 0) // the other API
	return errors.Join(err, signaled, s.Synchronize())
}

// export stands for what the other API exports.
func export(size int64) (*os.File, error) {
	f, err := os.CreateTemp("", "exported")
	if err != nil {
		return nil, err
	}
	return f, errors.Join(os.Remove(f.Name()), f.Truncate(size))
}
