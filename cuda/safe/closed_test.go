// Tests that every call on a nil, zero or closed object returns ErrClosed. They run on the
// simulated driver and on a GPU.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
)

// uses are calls of every type, which must fail in the same way on a nil
// pointer, a zero value and a closed object.
func streamUses(x *safe.Context, s *safe.Stream, e *safe.Event, b *safe.Buffer[int32], h *safe.Pinned[int32], m *safe.Module, k *safe.Kernel) map[string]func() error {
	values := make([]int32, 1)
	return map[string]func() error{
		"Context.WithCurrent":     func() error { return x.WithCurrent(func() error { return nil }) },
		"Context.WithoutCaptures": func() error { return x.WithoutCaptures(func() error { return nil }) },
		"Stream.EnqueueRaw":       func() error { return s.EnqueueRaw(func(driver.CUstream) error { return nil }) },
		"EnqueueCalls": func() error {
			_, err := safe.EnqueueCalls(safe.RawWork{Stream: s}, func(driver.CUstream) []safe.RawCall { return nil })
			return err
		},
		"EnqueueRaw":                func() error { return safe.EnqueueRaw(func() error { return nil }, safe.RawWork{Stream: s}) },
		"NewResource":               func() error { _, err := safe.NewResource(x, func() {}); return err },
		"Context.Limit":             func() error { _, err := x.Limit(0); return err },
		"Context.SetLimit":          func() error { return x.SetLimit(0, 0) },
		"Context.MemoryInfo":        func() error { _, _, err := x.MemoryInfo(); return err },
		"Context.Synchronize":       x.Synchronize,
		"Context.EnablePeerAccess":  func() error { return x.EnablePeerAccess(x) },
		"Context.DisablePeerAccess": func() error { return x.DisablePeerAccess(x) },
		"NewStream":                 func() error { _, err := safe.NewStream(x); return err },
		"StreamFromRaw":             func() error { _, err := safe.StreamFromRaw(9, x); return err },
		"BorrowStream":              func() error { _, err := safe.BorrowStream(9, x, nil); return err },
		"LegacyStream":              func() error { _, err := safe.LegacyStream(x); return err },
		"NewEvent":                  func() error { _, err := safe.NewEvent(x); return err },
		"OpenIPCEvent":              func() error { _, err := safe.OpenIPCEvent(x, driver.CUipcEventHandle{}); return err },
		"NewBuffer":                 func() error { _, err := safe.NewBuffer[int32](x, 1); return err },
		"NewBufferWith": func() error {
			_, err := safe.NewBufferWith[int32](x, 1, safe.BufferOptions{Plain: true})
			return err
		},
		"Context.TrimMemory":   x.TrimMemory,
		"NewArena":             func() error { _, err := safe.NewArena(s, 1); return err },
		"NewBufferIn":          func() error { _, err := safe.NewBufferIn[int32](new(safe.Arena), 1); return err },
		"Arena.Reset":          new(safe.Arena).Reset,
		"BorrowBuffer":         func() error { _, err := safe.BorrowBuffer[int32](x, 8, 1, nil); return err },
		"BufferFromRaw":        func() error { _, err := safe.BufferFromRaw[int32](x, 8, 1); return err },
		"EventFromRaw":         func() error { _, err := safe.EventFromRaw(9, x); return err },
		"BorrowEvent":          func() error { _, err := safe.BorrowEvent(9, x, nil); return err },
		"ImportExternalMemory": func() error { _, err := safe.ImportExternalMemory(x, nil, 1, safe.ExternalMemoryOptions{}); return err },
		"ImportExternalSemaphore": func() error {
			_, err := safe.ImportExternalSemaphore(x, nil, safe.ExternalSemaphoreOptions{})
			return err
		},
		"Stream.SignalExternal":      func() error { return s.SignalExternal() },
		"Stream.WaitExternal":        func() error { return s.WaitExternal() },
		"Stream.PrefetchAll":         func() error { return s.PrefetchAll(nil) },
		"Stream.DiscardAll":          func() error { return s.DiscardAll(nil) },
		"Pinned.Fill":                func() error { return h.Fill(1) },
		"Pinned.FillAsync":           func() error { return h.FillAsync(s, 1) },
		"Pinned.CopyFrom":            func() error { return h.CopyFrom(h) },
		"Pinned.CopyFromAsync":       func() error { return h.CopyFromAsync(s, h) },
		"NewPinned":                  func() error { _, err := safe.NewPinned[int32](x, 1); return err },
		"RegisterPinned":             func() error { _, err := safe.RegisterPinned(x, values); return err },
		"Load":                       func() error { _, err := safe.Load(x, []byte(".version")); return err },
		"Stream.Query":               func() error { _, err := s.Query(); return err },
		"Stream.Synchronize":         func() error { return s.Synchronize() },
		"Stream.Wait":                func() error { return s.Wait(context.Background()) },
		"Stream.SynchronizeBlocking": s.SynchronizeBlocking,
		"Stream.ID":                  func() error { _, err := s.ID(); return err },
		"Stream.Borrow":              func() error { _, err := s.Borrow(); return err },
		"NewBatch":                   func() error { _, err := safe.NewBatch(x); return err },
		"Batch.Submit":               func() error { return new(safe.Batch).Submit(s) },
		"Stream.Record":              func() error { return s.Record(e) },
		"Stream.WaitEvent":           func() error { return s.WaitEvent(e) },
		"NewManagedBuffer":           func() error { _, err := safe.NewManagedBuffer[int32](x, 1); return err },
		"Stream.Attribute":           func() error { _, err := s.Attribute(1); return err },
		"Stream.SetAttribute":        func() error { return s.SetAttribute(1, driver.CUstreamAttrValue{}) },
		"Stream.CopyAttributes":      func() error { return s.CopyAttributes(s) },
		"WaitValue":                  func() error { return safe.WaitValue(s, h.At(0), 1, 0) },
		"WriteValue":                 func() error { return safe.WriteValue(s, b.At(0), 1) },
		"Stream.MemOps":              func() error { return s.MemOps([]safe.MemOp{safe.NewWriteOp(b.At(0), 1)}) },
		"Buffer.AttachAsync":         func() error { return b.AttachAsync(s, driver.CU_MEM_ATTACH_HOST) },
		"Stream.AddNode":             func() error { _, err := s.AddNode(safe.EmptyNode()); return err },
		"Stream.NewCondition":        func() error { _, err := s.NewCondition(safe.ConditionOptions{}); return err },
		"Stream.AddIf":               func() error { _, err := s.AddIf(safe.Condition{}); return err },
		"Stream.AddIfElse":           func() error { _, _, err := s.AddIfElse(safe.Condition{}); return err },
		"Stream.AddWhile":            func() error { _, err := s.AddWhile(safe.Condition{}); return err },
		"Stream.AddSwitch":           func() error { _, err := s.AddSwitch(safe.Condition{}, 1); return err },
		"NewBufferAsync":             func() error { _, err := safe.NewBufferAsync[int32](s, 1); return err },
		"Stream.WaitStream":          func() error { return s.WaitStream(s) },
		"Stream.Fork":                func() error { return s.Fork(1, func([]*safe.Stream) error { return nil }) },
		"Stream.Time":                func() error { _, err := s.Time(context.Background(), nil); return err },
		"Context.CloseAll":           x.CloseAll,
		"Upload":                     func() error { _, err := safe.Upload(x, values); return err },
		"NewZeroed":                  func() error { _, err := safe.NewZeroed[int32](x, 1); return err },
		"Buffer.Download":            func() error { _, err := b.Download(); return err },
		"Event.Query":                func() error { _, err := e.Query(); return err },
		"Event.Synchronize":          func() error { return e.Synchronize() },
		"Event.Wait":                 func() error { return e.Wait(context.Background()) },
		"Event.Since":                func() error { _, err := e.Since(e); return err },
		"Event.IPCHandle":            func() error { _, err := e.IPCHandle(); return err },
		"Buffer.CopyFromHost":        func() error { return b.CopyFromHost(values) },
		"Buffer.CopyToHost":          func() error { return b.CopyToHost(values) },
		"Buffer.CopyFrom":            func() error { return b.CopyFrom(b) },
		"Buffer.CopyFromAsync":       func() error { return b.CopyFromAsync(s, b) },
		"Buffer.CopyFromHostAsync":   func() error { return b.CopyFromHostAsync(s, h) },
		"Buffer.CopyToHostAsync":     func() error { return b.CopyToHostAsync(s, h) },
		"Buffer.Fill":                func() error { return b.Fill(1) },
		"Buffer.FillAsync":           func() error { return b.FillAsync(s, 1) },
		"Buffer.Slice":               func() error { _, err := b.Slice(0, 1); return err },
		"Cast":                       func() error { _, err := safe.Cast[uint32](b); return err },
		"Pinned.Slice":               func() error { _, err := h.Slice(0, 1); return err },
		"Module.Kernel":              func() error { _, err := m.Kernel("nothing"); return err },
		"Module.KernelWith":          func() error { _, err := m.KernelWith("nothing", safe.KernelOptions{}); return err },
		"Global":                     func() error { _, err := safe.Global[int32](m, "table"); return err },
		"Kernel.Attribute":           func() error { _, err := k.Attribute(0); return err },
		"Kernel.SetAttribute":        func() error { return k.SetAttribute(0, 0) },
		"Kernel.Launch":              func() error { return k.Launch(s, safe.LaunchConfig{}) },
		"Kernel.MaxBlocksPerMultiprocessor": func() error {
			_, err := k.MaxBlocksPerMultiprocessor(1, 0)
			return err
		},
	}
}

// refusedAll checks that every use says that something is closed, and what.
func refusedAll(t *testing.T, calls map[string]func() error) {
	for op, call := range calls {
		t.Run(op, func(t *testing.T) {
			err := call()
			assert.ErrorIs(t, err, safe.ErrClosed)
			var e *safe.Error
			if assert.True(t, errors.As(err, &e)) {
				assert.Equal(t, strings.TrimSuffix(op, "With"), e.Op)
			}
		})
	}
}

func TestNil(t *testing.T) {
	refusedAll(t, streamUses(nil, nil, nil, nil, nil, nil, nil))
	for _, c := range []interface{ Close() error }{(*safe.Context)(nil), (*safe.Stream)(nil), (*safe.Event)(nil), (*safe.Buffer[int])(nil), (*safe.Pinned[int])(nil), (*safe.Module)(nil)} {
		assert.NoError(t, c.Close())
	}
}

func TestZeroValues(t *testing.T) {
	x, s, e, b, h, m, k := &safe.Context{}, &safe.Stream{}, &safe.Event{}, &safe.Buffer[int32]{}, &safe.Pinned[int32]{}, &safe.Module{}, &safe.Kernel{}
	refusedAll(t, streamUses(x, s, e, b, h, m, k))
	for _, c := range []interface{ Close() error }{x, s, e, b, h, m} {
		assert.NoError(t, c.Close())
	}
	assert.Zero(t, s.Release())
	assert.Zero(t, x.Raw())
	assert.Zero(t, s.Raw())
	assert.Zero(t, e.Raw())
	assert.Zero(t, b.Raw())
	assert.Zero(t, b.Len())
	assert.Nil(t, h.Data())
	assert.Zero(t, k.Raw())
	assert.Zero(t, s.Priority())
	assert.False(t, s.NonBlocking())
	assert.NotPanics(t, new(safe.Batch).Reset)
	assert.Zero(t, new(safe.Batch).Len())
}

func TestIsFatal(t *testing.T) {
	for _, code := range []driver.CUresult{226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911} {
		assert.True(t, safe.IsFatal(&safe.Error{Op: "x", Code: code, Err: code}), code)
	}
	for _, err := range []error{nil, safe.ErrClosed, driver.CUDA_ERROR_NOT_READY, driver.CUDA_ERROR_OUT_OF_MEMORY, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED} {
		assert.False(t, safe.IsFatal(err), err)
	}
	joined := errors.Join(safe.ErrClosed, driver.CUDA_ERROR_OUT_OF_MEMORY, fmt.Errorf("then: %w", driver.CUDA_ERROR_ILLEGAL_ADDRESS))
	assert.True(t, safe.IsFatal(joined), "not the first code")
	late := &safe.Error{Op: "Stream.Query", Code: 700, Err: driver.CUDA_ERROR_ILLEGAL_ADDRESS, Async: true}
	assert.ErrorContains(t, late, "cuda: Stream.Query: CUDA_ERROR_ILLEGAL_ADDRESS")
	assert.ErrorContains(t, late, "caused by earlier work")
	assert.ErrorIs(t, late, driver.CUDA_ERROR_ILLEGAL_ADDRESS)
	assert.ErrorIs(t, &safe.Error{Op: "x", Err: driver.CUDA_ERROR_NOT_SUPPORTED}, safe.ErrNotSupported)
}
