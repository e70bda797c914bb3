package profile

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
)

// base is the zero of times on the host until they are told from the start of a recording.
var base = time.Now()

// sample is one moment on two clocks.
type sample struct{ host, cupti int64 }

// now compares the clocks: of 9 attempts, the one that took the least.
func now() (s sample, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := int64(1) << 62
	for range 9 {
		var c uint64
		before := int64(time.Since(base))
		if err := cupti.CuptiGetTimestamp(&c); err != nil {
			return s, fmt.Errorf("cuptiGetTimestamp: %w", err)
		}
		if took := int64(time.Since(base)) - before; took < least {
			least, s = took, sample{before + took/2, int64(c)}
		}
	}
	return s, nil
}

// clock turns CUPTI's times into nanoseconds since the start. The clocks differ in their rates, which change, so they are
// compared now and then. Between two samples the rate is constant.
type clock struct {
	samples []sample
	start   int64 // on the host
}

// compare adds a sample of now.
func (c *clock) compare() error {
	s, err := now()
	if err == nil {
		c.add(s)
	}
	return err
}

// shortest is the least time between samples: a rate over less would be that of their errors.
const shortest = int64(time.Millisecond)

// add adds a sample, unless a clock was put back, or it is too early to tell a rate.
func (c *clock) add(s sample) {
	if n := len(c.samples); n > 0 {
		if last := c.samples[n-1]; s.cupti-last.cupti < shortest || s.host < last.host {
			return
		}
	}
	c.samples = append(c.samples, s)
}

// host is a time of CUPTI's as one of the host. Before the first sample and after the last one, the rates are those beside them.
func (c *clock) host(v int64) int64 {
	if len(c.samples) == 0 {
		return v - c.start
	}
	next, _ := slices.BinarySearchFunc(c.samples, v, func(s sample, v int64) int { return cmp.Compare(s.cupti, v) })
	next = min(max(next, 1), len(c.samples)-1)
	from, scale := c.samples[max(next-1, 0)], 1.0
	if next > 0 {
		to := c.samples[next]
		scale = float64(to.host-from.host) / float64(to.cupti-from.cupti)
	}
	return from.host + int64(float64(v-from.cupti)*scale) - c.start
}
