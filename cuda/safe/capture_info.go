package safe

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// CaptureInfo is the state of a capture.
type CaptureInfo struct {
	Status driver.CUstreamCaptureStatus
	// ID identifies the capture in this process. It is 0 without a capture.
	ID uint64
	// Graph is the graph under construction, for calls of package driver on the thread
	// that captures. It is 0 without a capture. Do not destroy it.
	Graph driver.CUgraph
	// Dependencies are the nodes that the next captured work depends on.
	Dependencies []Node
	// Data is the data of the edges from Dependencies. It is nil if all edges are plain,
	// or with a driver before CUDA 12.3.
	Data []driver.CUgraphEdgeData
}

// CaptureStatus returns whether the stream is capturing, and whether the capture is
// invalidated. Source: cuStreamIsCapturing.
func (s *Stream) CaptureStatus() (driver.CUstreamCaptureStatus, error) {
	const op = "Stream.CaptureStatus"
	var status driver.CUstreamCaptureStatus
	c, err := s.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	err = c.ctx.withCurrent(func() error { return driver.CuStreamIsCapturing(c.raw, &status) })
	return status, wrap(op, err)
}

// CaptureInfo returns the state of the stream's capture. Source:
// cuStreamGetCaptureInfo_v3, before CUDA 12.3 cuStreamGetCaptureInfo_v2.
func (s *Stream) CaptureInfo() (CaptureInfo, error) {
	const op = "Stream.CaptureInfo"
	var info CaptureInfo
	c, err := s.acquire(op)
	if err != nil {
		return info, err
	}
	defer c.Release()
	a := admission{op: op, stream: c}
	if err := a.admit(); err != nil {
		return info, err
	}
	defer a.leave(true)
	capture := a.capture
	err = c.ctx.withCurrent(func() error { return c.askCapture(&info, capture.core()) })
	return info, wrap(op, err)
}

// core returns the graph under construction, or nil for a capture that this package did
// not begin.
func (c *capturing) core() *graphCore {
	if c == nil {
		return nil
	}
	return c.graph
}

// askCapture copies the driver's arrays, which the next captured call may change.
func (s *streamCore) askCapture(info *CaptureInfo, g *graphCore) error {
	var nodes *driver.CUgraphNode
	var data *driver.CUgraphEdgeData
	var n uint64
	err := driver.CuStreamGetCaptureInfo_v3(s.raw, &info.Status, &info.ID, &info.Graph, &nodes, &data, &n)
	if errors.Is(err, driver.CUDA_ERROR_LOSSY_QUERY) || errors.Is(err, ErrNotSupported) {
		err = driver.CuStreamGetCaptureInfo_v2(s.raw, &info.Status, &info.ID, &info.Graph, &nodes, &n)
	}
	if err != nil || info.Status != driver.CU_STREAM_CAPTURE_STATUS_ACTIVE {
		info.ID, info.Graph = 0, 0
		return err
	}
	for _, raw := range unsafe.Slice(nodes, n) {
		node := Node{raw: raw}
		if g != nil {
			node = g.named(raw, 0)
		}
		if err := driver.CuGraphNodeGetType(raw, &node.kind); err != nil {
			return err
		}
		info.Dependencies = append(info.Dependencies, node)
	}
	if data != nil {
		info.Data = append(info.Data, unsafe.Slice(data, n)...)
	}
	return nil
}

// UpdateCaptureDependencies changes what the next captured work depends on. It adds nodes
// of the graph under construction to the dependencies, or replaces them by nodes if flags
// has driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES. data is the data of the edges from
// nodes, nil for plain edges; other data needs a driver for CUDA 12.3. It returns
// [ErrForeignNode] for a node of another graph. Source:
// cuStreamUpdateCaptureDependencies_v2, before CUDA 12.3
// cuStreamUpdateCaptureDependencies.
func (s *Stream) UpdateCaptureDependencies(nodes []Node, data []driver.CUgraphEdgeData, flags driver.CUstreamUpdateCaptureDependencies_flags) error {
	const op = "Stream.UpdateCaptureDependencies"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	a := admission{op: op, stream: c}
	if err := a.admit(); err != nil {
		return err
	}
	defer a.leave(true)
	capture := a.capture
	if capture == nil {
		return notCapturing(op)
	}
	raw, data, err := capture.graph.dependencies(op, nodes, data)
	if err != nil {
		return err
	}
	return wrap(op, c.setDependencies(raw, data, flags))
}
