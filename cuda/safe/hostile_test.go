//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Every exported function and method with nil, zero, closed and extreme values.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// functions are all exported functions.
var functions = map[string]any{
	"AddAlloc": safe.AddAlloc[float32], "AddAllocWith": safe.AddAllocWith[float32], "BatchCopy": safe.BatchCopy[float32],
	"BatchFill": safe.BatchFill[float32], "Blocks": safe.Blocks,
	"BorrowBuffer": safe.BorrowBuffer[float32], "BorrowContext": safe.BorrowContext, "BorrowEvent": safe.BorrowEvent,
	"BorrowStream": safe.BorrowStream, "BufferFromRaw": safe.BufferFromRaw[float32], "Cast": safe.Cast[uint64, float32],
	"ChildGraphNode": safe.ChildGraphNode, "CopyFromSlice": safe.CopyFromSlice[float32], "CopyNode": safe.CopyNode[float32],
	"CopyToSlice": safe.CopyToSlice[float32], "CurrentPool": safe.CurrentPool, "DefaultPool": safe.DefaultPool,
	"DeviceByPCI": safe.DeviceByPCI, "DeviceLocation": safe.DeviceLocation, "Devices": safe.Devices, "EmptyNode": safe.EmptyNode,
	"Enqueue": safe.Enqueue[float32], "EnqueueCalls": safe.EnqueueCalls, "EnqueueRaw": safe.EnqueueRaw, "EventFromRaw": safe.EventFromRaw, "FillNode": safe.FillNode[float32],
	"FreeNode": safe.FreeNode[float32], "Global": safe.Global[float32],
	"HostFuncNode": safe.HostFuncNode, "ImportBuffer": safe.ImportBuffer[float32], "ImportExternalMemory": safe.ImportExternalMemory,
	"ImportExternalSemaphore": safe.ImportExternalSemaphore, "ImportPhysicalMemory": safe.ImportPhysicalMemory,
	"ImportPool": safe.ImportPool, "IsFatal": safe.IsFatal, "KernelNode": safe.KernelNode, "LegacyStream": safe.LegacyStream,
	"Load": safe.Load, "LoadWith": safe.LoadWith, "LoadFile": safe.LoadFile, "MemOpsNode": safe.MemOpsNode,
	"NUMALocation": safe.NUMALocation, "NewArena": safe.NewArena,
	"NewArray": safe.NewArray[float32], "NewBatch": safe.NewBatch, "NewBuffer": safe.NewBuffer[float32],
	"NewBufferAsync": safe.NewBufferAsync[float32], "NewBufferFrom": safe.NewBufferFrom[float32], "NewBufferIn": safe.NewBufferIn[float32],
	"NewBufferWith": safe.NewBufferWith[float32], "NewContext": safe.NewContext, "NewContextWith": safe.NewContextWith, "NewCopyOp": safe.NewCopyOp[float32],
	"NewEvent": safe.NewEvent, "NewEventWith": safe.NewEventWith, "NewExternalBuffer": safe.NewExternalBuffer[float32],
	"NewGraph": safe.NewGraph, "NewGreenContext": safe.NewGreenContext,
	"NewLinearTexture": safe.NewLinearTexture[float32], "NewLinker": safe.NewLinker, "NewManagedBuffer": safe.NewManagedBuffer[float32],
	"NewMappedBuffer": safe.NewMappedBuffer[float32], "NewPhysicalMemory": safe.NewPhysicalMemory, "NewPinned": safe.NewPinned[float32], "NewPinnedWith": safe.NewPinnedWith[float32],
	"NewPitched": safe.NewPitched[float32], "NewPitchedTexture": safe.NewPitchedTexture[float32], "NewPool": safe.NewPool, "NewPoolWith": safe.NewPoolWith,
	"NewPrefetchOp": safe.NewPrefetchOp[float32], "NewResource": safe.NewResource, "NewStream": safe.NewStream, "NewStreamWith": safe.NewStreamWith,
	"NewSurface": safe.NewSurface[float32], "NewTexture": safe.NewTexture[float32], "NewWaitOp": safe.NewWaitOp[uint32],
	"NewWriteOp": safe.NewWriteOp[uint32], "NewZeroed": safe.NewZeroed[float32], "OnError": safe.OnError, "Open": safe.Open,
	"OpenIPCBuffer": safe.OpenIPCBuffer[float32], "OpenIPCEvent": safe.OpenIPCEvent, "PitchedOf": safe.PitchedOf[float32],
	"PointerAddress": safe.PointerAddress[float32], "PointerArg": safe.PointerArg[float32],
	"RecordNode": safe.RecordNode, "Ref": safe.Ref[float32], "RegisterPinned": safe.RegisterPinned[float32], "RegisterPinnedWith": safe.RegisterPinnedWith[float32], "ReserveAddress": safe.ReserveAddress,
	"Retain": safe.Retain, "SetBatchCopy": safe.SetBatchCopy[float32], "SetBatchFill": safe.SetBatchFill[float32],
	"SignalExternalNode": safe.SignalExternalNode, "Symbol": safe.Symbol, "StreamFromRaw": safe.StreamFromRaw,
	"Threads": safe.Threads, "Threads2D": safe.Threads2D, "TrackLeaks": safe.TrackLeaks, "Upload": safe.Upload[float32], "Val": safe.Val[float32],
	"VoidPointerAddress": safe.VoidPointerAddress, "VoidPointerArg": safe.VoidPointerArg,
	"WaitEventNode": safe.WaitEventNode, "WaitExternalNode": safe.WaitExternalNode, "WaitValue": safe.WaitValue[uint32],
	"WithCaptureMode": safe.WithCaptureMode, "WriteValue": safe.WriteValue[uint32],
}

var hostile = drivertest.Hostile{
	Objects: func(t *testing.T) (all []any) {
		watch(t)
		for _, list := range []map[string]text{texts(t), newerTexts(t)} {
			for _, o := range list {
				all = append(all, o.object)
			}
		}
		return append(all, shortLived(t)...)
	},
	Without: map[string]string{
		"WaitValue":           "it waits for a value that nobody writes",
		"safe.Stream.Release": "nobody would destroy the stream",
	},
}

// hostileClosed has objects that are closed.
var hostileClosed = drivertest.Hostile{
	Objects: func(t *testing.T) (all []any) {
		watch(t)
		for _, list := range []map[string]text{texts(t), newerTexts(t)} {
			for _, o := range list {
				all = append(all, o.object)
			}
			for _, o := range list {
				if o.close != nil {
					require.NoError(t, o.close())
				}
			}
		}
		return append(all, shortLived(t)...)
	},
	Without: hostile.Without,
}

// shortLived has an object of each type that does not live long.
func shortLived(t *testing.T) []any {
	x := open(t, 0)
	s := stream(t, x)
	var over *safe.Scope
	require.NoError(t, s.Scope(func(c *safe.Scope) error { over = c; return nil }))
	arena, err := safe.NewArena(s, 1000)
	require.NoError(t, err)
	closing(t, arena)
	c, err := stream(t, x).BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	t.Cleanup(func() {
		if g, err := c.End(); err == nil {
			require.NoError(t, g.Close())
		}
	})
	done := safe.Enqueue(s, func(*safe.Stream) (int, error) { return 0, nil })
	return []any{over, arena, c, done, newBatch(t, x), os.DirFS("testdata")}
}

// zeroValues are those of exported types that are not in zeros.
var zeroValues = []any{
	safe.Address[float32]{}, safe.Arg{}, safe.CaptureMode(0), safe.Condition{}, safe.CopyOp{}, safe.Device{}, safe.Element[int]{},
	safe.Extent{}, safe.MemOp{}, safe.NodeParams{}, safe.PrefetchOp{},
	safe.Location{}, safe.SMResource{}, safe.UUID{}, &safe.PhysicalMemory{}, &safe.GreenContext{},
	&safe.Error{}, &safe.LeakError{}, &safe.PanicError{}, &safe.SlowCallbackError{}, &safe.UpdateError{},
}

func TestHostile(t *testing.T) {
	needsSimulated(t)
	all := zeroValues
	for _, list := range zeros {
		all = append(all, list[len(list)-1])
	}
	hostile.Run(t, functions, all)
	hostileClosed.Run(t, functions, all)
}

// TestHugeCounts: what is far too many is refused before anything is made.
func TestHugeCounts(t *testing.T) {
	x := open(t, 0)
	g, s, values := newGraph(t, x), stream(t, x), buffer[int32](t, x, 4)
	for _, n := range []int{0, -1, 4097, 1 << 31, 1 << 40, math.MaxInt} {
		c, err := g.NewCondition(safe.ConditionOptions{})
		if errors.Is(err, safe.ErrNotSupported) { // drivers before CUDA 12.3
			break
		}
		require.NoError(t, err)
		_, _, err = g.AddSwitch(c, n)
		assert.ErrorIs(t, err, safe.ErrRange)
		assert.ErrorContains(t, err, fmt.Sprint(n, " bodies, but there may be 1 to 4096"))
	}
	defer safe.MostBatchWords(30)()
	b := newBatch(t, x)
	var err error
	for err == nil && b.Len() < 100 {
		err = safe.BatchFill(b, values, 1)
	}
	assert.ErrorIs(t, err, safe.ErrRange)
	assert.ErrorContains(t, err, "the batch takes more than 240 bytes: record the rest in another one")
	require.NoError(t, errors.Join(b.Submit(s), s.Synchronize()))
	for priority, want := range map[int]int32{1 << 32: math.MaxInt32, -1 << 40: math.MinInt32, -3: -3} {
		assert.Equal(t, want, safe.RawPriority(safe.LaunchConfig{Priority: priority}))
	}
}
