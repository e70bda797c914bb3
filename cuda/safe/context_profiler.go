package safe

import "github.com/cudabind/cudabind/cuda/generated/driver"

// StartProfiler tells the profiling tool that is attached to the process to record from
// now on: start the tool so that it waits for this, as nsys profile -c cudaProfilerApi
// does. Without a tool, or while it records already, StartProfiler does nothing. The tool
// records what all goroutines do.
//
// It waits for no work: call [Context.Synchronize] before, so that earlier work is not
// recorded. Source: cuProfilerStart.
func (x *Context) StartProfiler() error {
	return x.do("Context.StartProfiler", driver.CuProfilerStart)
}

// StopProfiler tells the profiling tool to stop recording: see [Context.StartProfiler].
// Some tools then end the program, as nsys does by default. It waits for no work: call
// [Context.Synchronize] before, or the last kernels may be missing.
// Source: cuProfilerStop.
func (x *Context) StopProfiler() error {
	return x.do("Context.StopProfiler", driver.CuProfilerStop)
}
