//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKernelFails(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(v []uint32)
		code driver.CUresult
		says string
	}{
		{"out of range", func(v []uint32) { v[len(v)] = 1 }, driver.CUDA_ERROR_ILLEGAL_ADDRESS, "kernel bad: panic: runtime error: index out of range [2] with length 2, at "},
		{"a panic", func([]uint32) { panic("no data") }, driver.CUDA_ERROR_LAUNCH_FAILED, "kernel bad: panic: no data, at "},
		{"an end", func([]uint32) { runtime.Goexit() }, driver.CUDA_ERROR_LAUNCH_FAILED, "kernel bad: it ended its goroutine"},
	} {
		for _, way := range []string{"alone", "in a graph"} {
			t.Run(c.name+" "+way, func(t *testing.T) {
				primary(t, 0)
				s, p := stream(t), memory(t, 8)
				require.NoError(t, control.Kernel("bad", func(_ sim.Grid, v []uint32) { c.do(v) }))
				f := loaded(t, entry("bad", ".u64"), "bad")
				control.FaultDelay(time.Millisecond)
				if way == "alone" {
					require.NoError(t, run(f, s, at(p)))
				} else {
					launchCaptured(t, s, func() { require.NoError(t, run(f, s, at(p))) })
				}
				require.ErrorIs(t, driver.CuStreamSynchronize(s), c.code)
				assert.Contains(t, control.Violation(), c.says)
				if c.says[len(c.says)-4:] == "at " {
					assert.Contains(t, control.Violation(), "kernel_test.go:")
				}
				control.Reset()
			})
		}
	}
}

// launchCaptured launches a graph of what work enqueues on a stream.
func launchCaptured(t *testing.T, s driver.CUstream, work func()) {
	t.Helper()
	require.NoError(t, driver.CuStreamBeginCapture(s, driver.CU_STREAM_CAPTURE_MODE_RELAXED))
	work()
	var g driver.CUgraph
	require.NoError(t, driver.CuStreamEndCapture(s, &g))
	var e driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&e, g, 0))
	require.NoError(t, driver.CuGraphLaunch(e, s))
	require.NoError(t, driver.CuGraphExecDestroy(e))
	require.NoError(t, driver.CuGraphDestroy(g))
}

// TestFaultBesideKernel: the kernel that runs when another one faults comes to its end.
func TestFaultBesideKernel(t *testing.T) {
	for _, way := range []string{"alone", "in a graph"} {
		t.Run(way, func(t *testing.T) {
			primary(t, 0)
			s := stream(t)
			begun, end, over := make(chan bool), make(chan bool), make(chan bool)
			require.NoError(t, control.Kernel("long", func(sim.Grid) { begun <- true; <-end; over <- true }))
			f := loaded(t, entry("long"), "long")
			work := func() {
				require.NoError(t, run(f, s))
				require.NoError(t, run(f, s))
			}
			if way == "alone" {
				work()
			} else {
				launchCaptured(t, s, work)
			}
			<-begun
			control.FaultDelay(0)
			control.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
			require.ErrorIs(t, driver.CuStreamSynchronize(s), driver.CUDA_ERROR_ILLEGAL_ADDRESS)
			control.Reset()
			end <- true
			<-over
			select {
			case <-begun:
				assert.Fail(t, "the second one ran")
			case <-time.After(10 * time.Millisecond):
			}
		})
	}
}

// TestKernelAddresses: those that a real kernel may not use fail the launch before it begins.
func TestKernelAddresses(t *testing.T) {
	for _, c := range []struct {
		name    string
		address func(t *testing.T) uint64
		code    driver.CUresult
		says    string
	}{
		{"freed", func(t *testing.T) uint64 {
			p := allocate(t, 8)
			require.NoError(t, driver.CuMemFree(p))
			return uint64(p)
		}, driver.CUDA_ERROR_ILLEGAL_ADDRESS, "after the release"},
		{"of another device", func(t *testing.T) uint64 {
			primary(t, 1)
			return uint64(memory(t, 8))
		}, driver.CUDA_ERROR_ILLEGAL_ADDRESS, ""},
		{"of the host", func(t *testing.T) uint64 { return uint64(uintptr(at(1))) }, driver.CUDA_ERROR_ILLEGAL_ADDRESS, ""},
		{"odd", func(t *testing.T) uint64 { return uint64(memory(t, 8)) + 2 }, driver.CUDA_ERROR_MISALIGNED_ADDRESS, "kernel idle: parameter 0 is an address that is not a multiple of 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			s := stream(t)
			require.NoError(t, control.Kernel("idle", func(_ sim.Grid, v []uint32) { assert.Fail(t, "it ran") }))
			f := loaded(t, entry("idle", ".u64"), "idle")
			control.FaultDelay(0)
			if c.name == "of another device" {
				t.Cleanup(func() { control.Reset() })
			}
			require.NoError(t, run(f, s, at(c.address(t))))
			require.ErrorIs(t, driver.CuStreamSynchronize(s), c.code)
			assert.Contains(t, control.Violation(), c.says)
			control.Reset()
		})
	}
}
