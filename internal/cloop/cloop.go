package cloop

import "unsafe"

// Loop is a loop of C. Its arguments are those named here, functions first.
type Loop uint

// The loops. cloop.c has a table of them in the same order.
const (
	Nothing          Loop = iota // a function that does nothing, called by its address
	Version                      // cuDriverGetVersion
	Query                        // a function of one handle, such as cuStreamQuery; the handle
	QueryPair                    // the same on two threads at once; the handle, cuCtxSetCurrent, the context
	Record                       // cuEventRecord; event, stream
	WaitEvent                    // cuStreamWaitEvent; stream, event
	Launch0                      // cuLaunchKernel; function, stream
	Launch3                      // the same with parameters u64, u32 and f32; function, stream, u64
	Launch16                     // the same with 16 parameters u64; function, stream
	CreateDestroy                // such as cuStreamCreate and cuStreamDestroy_v2; flags
	AllocFree                    // cuMemAllocAsync and cuMemFreeAsync; size, stream
	Copy                         // such as cuMemcpyHtoD_v2; destination, source, size
	CopyAndWait                  // such as cuMemcpyHtoDAsync_v2, and cuStreamSynchronize; destination, source, size, stream
	LaunchAndWait                // cuLaunchKernel with a parameter u64, and cuStreamSynchronize; function, stream, u64
	GraphLaunch                  // cuGraphLaunch; executable, stream
	GraphAndWait                 // cuGraphLaunch, and cuStreamSynchronize; executable, stream
	HostFunc                     // cuLaunchHostFunc of a function that counts; stream. It ends when all have run
	GraphBuild                   // cuGraphCreate, cuGraphAddKernelNode_v2, cuGraphDestroy, of a chain as of Launch3; function, u64, kernels
	GraphInstantiate             // cuGraphInstantiateWithFlags, cuGraphExecDestroy; graph
	GraphUpdate                  // cuGraphExecUpdate_v2 by one graph, then by another; executable, both graphs
	GraphSet                     // cuGraphExecKernelNodeSetParams_v2 of all nodes; executable, function, u64, address of the nodes, their number
	Peers                        // cuMemcpyPeerAsync of one copy or two, with cuCtxPushCurrent_v2, cuStreamSynchronize, cuCtxPopCurrent_v2; size, number, and for each of two destination, context, source, context, stream
	Step                         // a step of a simulation, as tools/bench/step.go; functions, stream, plan, edge, spectrum, host, 7 kernels, 7 arrays
	Transform                    // such as cufftXtExec; plan, in, out, direction
	LaunchParts                  // cuLaunchKernel without parameters, or cuGraphLaunch, and around it cuCtxGetCurrent, cuCtxSetCurrent, cuThreadExchangeStreamCaptureMode, cuStreamIsCapturing; function or executable, stream, bits: the context, the question, the mode, cuGraphLaunch; context
)

var arguments = [...]int{
	Nothing: 0, Version: 1, Query: 2, QueryPair: 4, Record: 3, WaitEvent: 3, Launch0: 3, Launch3: 4, Launch16: 3,
	CreateDestroy: 3, AllocFree: 4, Copy: 4, CopyAndWait: 6,
	LaunchAndWait: 5, GraphLaunch: 3, GraphAndWait: 4, HostFunc: 2,
	GraphBuild: 6, GraphInstantiate: 3, GraphUpdate: 4, GraphSet: 6, Peers: 16,
	Step: 24, Transform: 5, LaunchParts: 9,
}

// A Watch is a thread of C that waits for an event: see [Start].
type Watch struct{ thread unsafe.Pointer }
