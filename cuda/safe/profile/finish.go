package profile

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// finish puts all times on one clock, drops what is incomplete, and finds calls and ranges.
func (t *Timeline) finish(c *clock) {
	t.Work, t.Calls, t.Ranges, t.Waits = t.work.take(), t.calls.take(), t.ranges.take(), t.waits.take()
	// during turns CUPTI's times into those of the recording, and returns false for what has none, or was over before: kinds
	// are recorded a moment earlier.
	during := func(start, end *time.Duration) bool {
		if *start == 0 || *end == 0 {
			return false
		}
		*start, *end = time.Duration(max(c.host(int64(*start)), 0)), time.Duration(c.host(int64(*end)))
		return *end >= *start
	}
	t.Work = kept(t.Work, func(w *Work) bool { return during(&w.Start, &w.End) })
	t.Calls = kept(t.Calls, func(c *Call) bool { return during(&c.Start, &c.End) })
	for i := range t.Ranges {
		t.Ranges[i].Start -= time.Duration(c.start)
		t.Ranges[i].End -= time.Duration(c.start)
	}
	for i := range t.Waits {
		t.Waits[i].Start -= time.Duration(c.start)
		t.Waits[i].End -= time.Duration(c.start)
	}
	slices.SortStableFunc(t.Work, func(a, b Work) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(t.Calls, func(a, b Call) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) })
	slices.SortStableFunc(t.Waits, func(a, b Wait) int { return cmp.Compare(a.Start, b.Start) })
	t.attribute(t.nest())
	t.occupancy()
	t.symbols, t.functions = nil, [2][]*called{}
}

// kept returns the elements for which f returns true. f may change them.
func kept[T any](all []T, f func(*T) bool) []T {
	n := 0
	for i := range all {
		if f(&all[i]) {
			all[n] = all[i]
			n++
		}
	}
	clear(all[n:])
	return all[:n]
}

// nest finds the range around each range, and returns the ranges of each thread.
func (t *Timeline) nest() map[uint32][]int {
	slices.SortStableFunc(t.Ranges, func(a, b Span) int { // an outer range before its inner ones
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	threads := map[uint32][]int{}
	for i := range t.Ranges {
		s := &t.Ranges[i]
		s.Parent = -1
		if have := threads[s.Thread]; len(have) > 0 {
			for p := have[len(have)-1]; p >= 0; p = t.Ranges[p].Parent {
				if t.Ranges[p].End >= s.End {
					s.Parent = p
					break
				}
			}
		}
		threads[s.Thread] = append(threads[s.Thread], i)
	}
	return threads
}

// attribute finds the range of each call and wait by its thread and its time, and the call of the work. Calls
// stay within their range, as the clocks differ by microseconds.
func (t *Timeline) attribute(threads map[uint32][]int) {
	calls := make(map[uint32]int, len(t.Calls))
	for i := range t.Calls {
		c := &t.Calls[i]
		if _, ok := calls[c.correlation]; !ok { // the outermost, of a call of the runtime and those that it makes
			calls[c.correlation] = i
		}
		c.Range = t.rangeAt(threads[c.Thread], c.Start+(c.End-c.Start)/2)
		if c.Range >= 0 {
			r := &t.Ranges[c.Range]
			c.Start, c.End = min(max(c.Start, r.Start), r.End), min(max(c.End, r.Start), r.End)
		}
	}
	for i := range t.Waits {
		w := &t.Waits[i]
		w.Range = t.rangeAt(threads[w.thread], w.Start)
		if w.Range >= 0 && t.Ranges[w.Range].End < w.End {
			w.Range = -1 // of another goroutine, which had the thread
		}
	}
	for i := range t.Work {
		w := &t.Work[i]
		w.Call, w.Range = -1, -1
		if c, ok := calls[w.correlation]; ok {
			w.Call, w.Range = c, t.Calls[c].Range
		}
	}
}

// rangeAt returns the innermost of a thread's ranges at a time, -1 for none.
func (t *Timeline) rangeAt(of []int, at time.Duration) int {
	i := sort.Search(len(of), func(i int) bool { return t.Ranges[of[i]].Start > at }) - 1
	if i < 0 {
		return -1
	}
	for r := of[i]; r >= 0; r = t.Ranges[r].Parent {
		if t.Ranges[r].End >= at {
			return r
		}
	}
	return -1
}

// occupancy computes the theoretical occupancy of kernels: how many of their blocks a multiprocessor has room for.
func (t *Timeline) occupancy() {
	rooms := map[int]room{}
	for i := range t.Work {
		w := &t.Work[i]
		if w.Kind != Kernel {
			continue
		}
		r, ok := rooms[w.Device]
		if !ok {
			r = roomOf(w.Device)
			rooms[w.Device] = r
		}
		w.Occupancy = r.occupancy(int(w.Block[0])*int(w.Block[1])*int(w.Block[2]), w.Registers, w.StaticShared+w.DynamicShared)
	}
}

// room is what a multiprocessor has.
type room struct{ threads, blocks, registers, shared, reserved, warp int }

func roomOf(device int) (r room) {
	for a, to := range map[driver.CUdevice_attribute]*int{
		driver.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:       &r.threads,
		driver.CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:        &r.blocks,
		driver.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:     &r.registers,
		driver.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: &r.shared,
		driver.CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:     &r.reserved,
		driver.CU_DEVICE_ATTRIBUTE_WARP_SIZE:                            &r.warp,
	} {
		var v int32
		if driver.CuDeviceGetAttribute(&v, a, driver.CUdevice(device)) == nil {
			*to = int(v)
		}
	}
	return r
}

func (r room) occupancy(threads, registers, shared int) float64 {
	if r.warp == 0 || r.threads == 0 || threads == 0 {
		return 0
	}
	warps := (threads + r.warp - 1) / r.warp
	blocks := min(r.blocks, r.threads/r.warp/warps)
	if registers > 0 { // CUDA gives warps registers in units of 256, to each of 4 parts of a multiprocessor
		ofWarp := (registers*r.warp + 255) / 256 * 256
		blocks = min(blocks, r.registers/4/ofWarp*4/warps)
	}
	if shared += r.reserved; shared > 0 {
		blocks = min(blocks, r.shared/shared)
	}
	return float64(blocks*warps) / float64(r.threads/r.warp)
}
