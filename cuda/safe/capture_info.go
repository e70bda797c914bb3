package safe

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// CaptureInfo says how far a capture has come.
type CaptureInfo struct {
	Status driver.CUstreamCaptureStatus
	// ID is unique to the capture in this process, 0 where there is none.
	ID uint64
	// Graph is what is being made, for calls of package driver on the thread that
	// captures; 0 where there is no capture. It is not to be destroyed.
	Graph driver.CUgraph
	// Dependencies are the nodes that the next captured work will wait for.
	Dependencies []Node
	// Data of the edges from them; nil where the driver is older than CUDA 12.3, or
	// where all are of the plain kind.
	Data []driver.CUgraphEdgeData
}

// CaptureStatus tells whether the stream captures, and whether the capture is
// lost already. Source: cuStreamIsCapturing.
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

// CaptureInfo asks about the capture under way on the stream.
// Source: cuStreamGetCaptureInfo_v3, before CUDA 12.3 cuStreamGetCaptureInfo_v2.
func (s *Stream) CaptureInfo() (CaptureInfo, error) {
	const op = "Stream.CaptureInfo"
	var info CaptureInfo
	c, err := s.acquire(op)
	if err != nil {
		return info, err
	}
	defer c.Release()
	capture, err := c.enter(op)
	if err != nil {
		return info, err
	}
	defer c.leave(capture)
	err = c.ctx.withCurrent(func() error { return c.askCapture(&info, capture.core()) })
	return info, wrap(op, err)
}

// core is the graph that is being made, nil for a capture begun by other means.
func (c *capturing) core() *graphCore {
	if c == nil {
		return nil
	}
	return c.graph
}

// askCapture copies what the driver points to, before anything is captured again.
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

// UpdateCaptureDependencies changes what the next captured work will wait for:
// nodes of the graph that is being made are added to it, or with flags
// driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES replace it. data is of the edges from
// the nodes, nil for plain ones; other data needs a driver of CUDA 12.3. Nodes of
// another graph are [ErrForeignNode]. Source: cuStreamUpdateCaptureDependencies_v2,
// before CUDA 12.3 cuStreamUpdateCaptureDependencies.
func (s *Stream) UpdateCaptureDependencies(nodes []Node, data []driver.CUgraphEdgeData, flags driver.CUstreamUpdateCaptureDependencies_flags) error {
	const op = "Stream.UpdateCaptureDependencies"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	capture, err := c.enter(op)
	if err != nil {
		return err
	}
	defer c.leave(capture)
	if capture == nil {
		return refuse(op, driver.CUDA_ERROR_ILLEGAL_STATE, "no capture that this package began is under way on the stream")
	}
	raw, data, err := capture.graph.dependencies(op, nodes, data)
	if err != nil {
		return err
	}
	err = c.ctx.withCurrent(func() error {
		first, n := unsafe.SliceData(raw), uint64(len(raw))
		err := driver.CuStreamUpdateCaptureDependencies_v2(c.raw, first, unsafe.SliceData(data), n, uint32(flags))
		if errors.Is(err, ErrNotSupported) && data == nil {
			err = driver.CuStreamUpdateCaptureDependencies_v1(c.raw, first, n, uint32(flags))
		}
		return err
	})
	return wrap(op, err)
}
