package safe

import (
	"context"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Time calls f, which enqueues work on the stream, waits for that work, and returns the
// time on the device from before its start to its end: see [Event.Since]. It includes other
// work that is enqueued on the stream meanwhile, and loading kernels at their first launch.
//
// If f returns an error, Time returns it at once. If ctx ends before the work has completed,
// Time returns its cause, and the work goes on. It returns [ErrCapturing] if the stream is
// capturing. Source: cuEventCreate, cuEventRecord, cuEventElapsedTime.
func (s *Stream) Time(ctx context.Context, f func() error) (time.Duration, error) {
	const op = "Stream.Time"
	c, err := s.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	if ctx == nil {
		return 0, noContext(op)
	}
	if f == nil {
		return 0, noFunction(op)
	}
	if err := c.notCapturing(op); err != nil {
		return 0, err
	}
	var events [2]*Event
	for i := range events {
		events[i], err = makeEvent(op, c.ctx.view, func(raw *driver.CUevent) error { return driver.CuEventCreate(raw, 0) })
		if err != nil {
			return 0, err
		}
		defer events[i].Close()
	}
	start, end := events[0], events[1]
	if err := c.record(op, start.core, 0); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := c.record(op, end.core, 0); err != nil {
		return 0, err
	}
	if err := end.Wait(ctx); err != nil {
		return 0, wrap(op, err)
	}
	took, err := end.Since(start)
	return took, wrap(op, err)
}
