//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The calls of TestCaptureRaces, one row each: which errors the call may return besides
// nil, and whether it may become part of the graph. They run on any driver.

package safe_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

var (
	inCapture = []error{safe.ErrCapturing}
	ofLegacy  = []error{safe.ErrCapturing, driver.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT}
	noCapture = []error{safe.ErrCapturing, driver.CUDA_ERROR_ILLEGAL_STATE, driver.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT}
)

func streamCalls() []streamCall {
	return slices.Concat(askingCalls, attributeCalls, workCalls, objectCalls)
}

// asking returns a row for a query of a stream.
func asking(name string, f func(s *safe.Stream) error) streamCall {
	return streamCall{name, func(_ *arena, s *safe.Stream) func() error { return func() error { return f(s) } }, inCapture, false}
}

var askingCalls = []streamCall{
	asking("Query", func(s *safe.Stream) error { _, err := s.Query(); return err }),
	asking("Wait", synchronized),
	asking("Wait that is cancelled", func(s *safe.Stream) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Microsecond)
		defer cancel()
		return except(s.Wait(ctx), context.DeadlineExceeded, safe.ErrCapturing)
	}),
	asking("SynchronizeBlocking", (*safe.Stream).SynchronizeBlocking),
	asking("Completion", func(s *safe.Stream) error { _, err := s.Completion().Wait(context.Background()); return err }),
	asking("ID", func(s *safe.Stream) error { _, err := s.ID(); return err }),
	asking("SMs", func(s *safe.Stream) error { _, err := s.SMResource(); return err }),
	asking("GreenContext", func(s *safe.Stream) error { _, err := s.GreenContext(); return err }),
	asking("Scope", func(s *safe.Stream) error { return s.Scope(func(*safe.Scope) error { return nil }) }),
	asking("CaptureStatus", func(s *safe.Stream) error { _, err := s.CaptureStatus(); return except(err, ofLegacy...) }),
	asking("CaptureInfo", func(s *safe.Stream) error { _, err := s.CaptureInfo(); return except(err, ofLegacy...) }),
	asking("UpdateCaptureDependencies", func(s *safe.Stream) error {
		err := s.UpdateCaptureDependencies(nil, nil, driver.CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
		return except(err, noCapture...)
	}),
}

var attributeCalls = []streamCall{
	asking("Priority", func(s *safe.Stream) error { s.Priority(); return nil }),
	asking("Attribute", func(s *safe.Stream) error { _, err := policyOf(s); return err }),
	asking("SetAttribute", func(s *safe.Stream) error { return setPolicy(s, driver.CU_SYNC_POLICY_AUTO) }),
	{"CopyAttributes to it", func(a *arena, s *safe.Stream) func() error {
		return func() error { return s.CopyAttributes(a.other) }
	}, inCapture, false},
	{"CopyAttributes from it", func(a *arena, s *safe.Stream) func() error {
		return func() error { return a.other.CopyAttributes(s) }
	}, inCapture, false},
}

// working returns a row for work on memory of its own.
func working(name string, f func(s *safe.Stream, b *safe.Buffer[uint32], h *safe.Pinned[uint32]) error) streamCall {
	return streamCall{name, func(a *arena, s *safe.Stream) func() error {
		b, h := plainBuffer[uint32](a.t, a.x, 64), host[uint32](a.t, a.x, 64)
		clear(h.Data())
		return func() error { return f(s, b, h) }
	}, inCapture, true}
}

var workCalls = []streamCall{
	working("Memset", func(s *safe.Stream, b *safe.Buffer[uint32], _ *safe.Pinned[uint32]) error {
		return b.FillAsync(s, 1)
	}),
	working("CopyFromHostAsync", func(s *safe.Stream, b *safe.Buffer[uint32], h *safe.Pinned[uint32]) error {
		return b.CopyFromHostAsync(s, h)
	}),
	working("WriteValue", func(s *safe.Stream, b *safe.Buffer[uint32], _ *safe.Pinned[uint32]) error {
		return safe.WriteValue(s, b.At(0), 1)
	}),
	working("WaitValue", func(s *safe.Stream, _ *safe.Buffer[uint32], h *safe.Pinned[uint32]) error {
		return safe.WaitValue(s, h.At(0), 0, driver.CU_STREAM_WAIT_VALUE_GEQ)
	}),
	working("MemOps", func(s *safe.Stream, b *safe.Buffer[uint32], h *safe.Pinned[uint32]) error {
		return s.MemOps([]safe.MemOp{safe.NewWriteOp(b.At(0), 1), safe.NewWriteOp(h.At(1), 1)})
	}),
	working("EnqueueRaw", func(s *safe.Stream, b *safe.Buffer[uint32], _ *safe.Pinned[uint32]) error {
		return s.EnqueueRaw(func(raw driver.CUstream) error { return clearRaw(b, raw) }, b.Arg())
	}),
	working("EnqueueCalls", func(s *safe.Stream, b *safe.Buffer[uint32], _ *safe.Pinned[uint32]) error { return clearByCalls(b, s) }),
	{"EnqueueRaw on two streams", func(a *arena, s *safe.Stream) func() error {
		b := buffer[uint32](a.t, a.x, 64)
		return func() error {
			return safe.EnqueueRaw(func() error { return clearRaw(b, s.Raw()) }, safe.RawWork{Stream: a.other}, safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}})
		}
	}, inCapture, true},
	{"Launch", func(a *arena, s *safe.Stream) func() error {
		return func() error { return a.nothing.Launch(s, one) }
	}, inCapture, true},
	{"LaunchHostFunc", func(a *arena, s *safe.Stream) func() error {
		return func() error {
			f, err := s.LaunchHostFunc(func() {})
			if err != nil {
				return err
			}
			select { // also where it became part of the graph
			case <-f.Done():
				return f.Err()
			case <-time.After(atOnce):
				return errors.New("the future never completes: it was captured as a function that runs once")
			}
		}
	}, inCapture, true},
	{"AddCallback", func(a *arena, s *safe.Stream) func() error {
		return func() error {
			called := make(chan error, 1)
			if err := s.AddCallback(func(err error) { called <- err }); err != nil {
				return err
			}
			select {
			case err := <-called:
				return err
			case <-time.After(atOnce):
				return errors.New("the function is never called")
			}
		}
	}, inCapture, false},
	{"GraphExec.Launch", func(a *arena, s *safe.Stream) func() error {
		e := a.executable()
		return func() error { return e.Launch(s) }
	}, inCapture, false},
	{"GraphExec.Upload", func(a *arena, s *safe.Stream) func() error {
		e := a.executable()
		return func() error { return e.Upload(s) }
	}, inCapture, false},
	{"Record", func(a *arena, s *safe.Stream) func() error {
		// A GPU that records events with timing one after the other runs nothing else.
		e, err := safe.NewEventWith(a.x, safe.EventOptions{DisableTiming: true})
		require.NoError(a.t, err)
		closing(a.t, e)
		return func() error { return s.Record(e) }
	}, inCapture, false},
	{"WaitEvent, never recorded", func(a *arena, s *safe.Stream) func() error {
		e := event(a.t, a.x)
		return func() error { return s.WaitEvent(e) }
	}, inCapture, false},
	{"WaitEvent, recorded elsewhere", func(a *arena, s *safe.Stream) func() error {
		return func() error { return s.WaitEvent(a.recorded) }
	}, inCapture, false},
}

// executable returns a minimal executable.
func (a *arena) executable() *safe.GraphExec {
	g, err := a.other.Capture(func() error { return a.nothing.Launch(a.other, one) })
	require.NoError(a.t, err)
	closing(a.t, g)
	return executable(a.t, g)
}

var objectCalls = []streamCall{
	{"NewBufferAsync", func(a *arena, s *safe.Stream) func() error {
		return func() error {
			b, err := safe.NewBufferAsync[uint32](s, 64)
			if err != nil {
				return err
			}
			err = except(b.Fill(0), safe.ErrCapturing, safe.ErrNotAllocated, safe.ErrClosed) // it is there, or the graph's
			return errors.Join(err, b.Close())
		}
	}, inCapture, true},
	{"AddNode", func(a *arena, s *safe.Stream) func() error {
		b := buffer[uint32](a.t, a.x, 64)
		return func() error {
			_, err := s.AddNode(safe.FillNode(b, 0))
			return except(err, noCapture...)
		}
	}, inCapture, true},
	{"Buffer that was used on it: CopyToHost", func(a *arena, s *safe.Stream) func() error {
		b := buffer[uint32](a.t, a.x, 64)
		require.NoError(a.t, b.FillAsync(s, 0))
		return func() error { return b.CopyToHost(make([]uint32, 64)) }
	}, inCapture, false},
	{"Buffer that was used on it: Close", func(a *arena, s *safe.Stream) func() error {
		return func() error {
			b, err := safe.NewBuffer[uint32](a.x, 64)
			if err != nil {
				return err
			}
			return errors.Join(except(b.FillAsync(s, 0), safe.ErrCapturing), b.Close())
		}
	}, nil, true},
	{"Buffer that was used on it: dropped", func(a *arena, s *safe.Stream) func() error {
		return func() error {
			b, err := safe.NewBuffer[uint32](a.x, 64)
			if err != nil {
				return err
			}
			return b.FillAsync(s, 0)
		}
	}, inCapture, true},
	{"Borrow", func(a *arena, s *safe.Stream) func() error {
		return func() error {
			same, err := s.Borrow()
			if err != nil {
				return err
			}
			_, err = same.Query()
			return errors.Join(err, same.Close())
		}
	}, inCapture, false},
	{"BorrowStream", func(a *arena, s *safe.Stream) func() error {
		if s == a.legacy {
			return nil
		}
		return func() error {
			same, err := safe.BorrowStream(s.Raw(), a.x, s)
			if err != nil {
				return err
			}
			_, err = same.Query()
			return errors.Join(err, same.Close())
		}
	}, inCapture, false},
	{"CopyAll", func(a *arena, s *safe.Stream) func() error {
		if s == a.legacy {
			return nil
		}
		b, h := buffer[uint32](a.t, a.x, 64), host[uint32](a.t, a.x, 64)
		copies := []safe.CopyOp{safe.NewCopyOp[uint32](b, h)}
		return func() error { return s.CopyAll(copies) }
	}, inCapture, false},
	{"Batch.Submit", func(a *arena, s *safe.Stream) func() error {
		m, h, e := buffer[uint32](a.t, a.x, 64), host[uint32](a.t, a.x, 64), event(a.t, a.x)
		b := newBatch(a.t, a.x)
		require.NoError(a.t, errors.Join(safe.BatchCopy(b, m, h), b.Record(e), b.WaitEvent(e), safe.BatchFill(b, m, 2)))
		return func() error {
			err := b.Submit(s)
			return except(err, safe.ErrInvalidArgument) // the capture of the record has ended before the wait
		}
	}, inCapture, true},
	{"PrefetchAsync", func(a *arena, s *safe.Stream) func() error {
		b := managed[uint32](a.t, a.x, 64)
		return func() error { return b.PrefetchAsync(s, safe.DeviceLocation(a.x.Device())) }
	}, inCapture, false},
	{"AttachAsync", func(a *arena, s *safe.Stream) func() error {
		b := managed[uint32](a.t, a.x, 64)
		return func() error { return b.AttachAsync(s, driver.CU_MEM_ATTACH_GLOBAL) }
	}, inCapture, false},
	{"Scope with a copy", func(a *arena, s *safe.Stream) func() error {
		b := buffer[uint32](a.t, a.x, 64)
		return func() error {
			return s.Scope(func(c *safe.Scope) error { return safe.CopyFromSlice(c, b, make([]uint32, 64)) })
		}
	}, inCapture, false},
}
