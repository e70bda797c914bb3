package safe

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// splits counts splits, to give each a number.
var splits atomic.Uint64

// SMResource returns all multiprocessors of the device. It returns [ErrNotSupported] with
// a driver before CUDA 12.4. Source: cuDeviceGetDevResource.
func (d Device) SMResource() (SMResource, error) { return d.sms("Device.SMResource") }

func (d Device) sms(op string) (SMResource, error) {
	m := SMResource{device: d}
	err := d.get(op, func() error {
		return driver.CuDeviceGetDevResource(d.raw, &m.raw, driver.CU_DEV_RESOURCE_TYPE_SM)
	})
	return m, err
}

// Device returns the GPU that has the multiprocessors.
func (m SMResource) Device() Device { return m.device }

// Raw returns the resource for calls to package driver.
func (m SMResource) Raw() driver.CUdevResource { return m.raw }

// String describes the multiprocessors for messages.
func (m SMResource) String() string {
	return fmt.Sprintf("%d multiprocessors of %v", m.Count(), m.device)
}

// SplitOptions are the options of [SMResource.Split]. The zero value makes as many groups
// as possible.
type SplitOptions struct {
	// Groups is the number of groups, 0 for as many as possible.
	Groups int
	// Min is the minimum number of multiprocessors of a group, 0 for the smallest group.
	// CUDA rounds it up to what the device supports: a multiple of 8 for compute capability
	// 9.0.
	Min int
	// Flags such as driver.CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, which allows
	// smaller groups that cannot run large clusters.
	Flags driver.CUdevSmResourceSplitByCount_flags
}

// Split divides all multiprocessors of the device into groups: see [SMResource.Split] for the groups and errors.
// Source: cuDeviceGetDevResource, cuDevSmResourceSplitByCount.
func (d Device) Split(o SplitOptions) (groups []SMResource, rest SMResource, err error) {
	const op = "Device.Split"
	m, err := d.sms(op)
	if err != nil {
		return nil, SMResource{}, err
	}
	return m.split(op, o)
}

// Split divides m into groups of equal size that share no multiprocessors. rest has the remaining multiprocessors,
// possibly none; it guarantees neither clusters nor performance. It returns [ErrRange] if m has too few multiprocessors
// for o, or if a number in o is negative. Groups cannot be split again, but the result of [GreenContext.SMResource]
// can. It returns [ErrNotSupported] with a driver before CUDA 12.4. Source: cuDevSmResourceSplitByCount.
func (m SMResource) Split(o SplitOptions) (groups []SMResource, rest SMResource, err error) {
	return m.split("SMResource.Split", o)
}

func (m SMResource) split(op string, o SplitOptions) (groups []SMResource, rest SMResource, err error) {
	least, possible := max(o.Min, 1), uint32(0)
	if o.Min < 0 || o.Groups < 0 {
		return nil, SMResource{}, refuse(op, ErrRange, "Min is %d and Groups is %d, but neither may be negative", o.Min, o.Groups)
	}
	if least > m.Count() {
		return nil, SMResource{}, refuse(op, ErrRange, "cannot make %d groups of at least %d from %v", o.Groups, least, m)
	}
	err = driver.CuDevSmResourceSplitByCount(nil, &possible, &m.raw, nil, o.Flags, uint32(least))
	if err != nil {
		return nil, SMResource{}, wrap(op, err)
	}
	if o.Groups > int(possible) || possible == 0 {
		return nil, SMResource{}, refuse(op, ErrRange, "cannot make %d groups of at least %d from %v: at most %d", o.Groups, least, m, possible)
	}
	if o.Groups > 0 {
		possible = uint32(o.Groups)
	}
	raw, left := make([]driver.CUdevResource, possible), driver.CUdevResource{}
	err = driver.CuDevSmResourceSplitByCount(unsafe.SliceData(raw), &possible, &m.raw, &left, o.Flags, uint32(least))
	if err != nil {
		return nil, SMResource{}, wrap(op, err)
	}
	groups, rest = m.parts(raw[:possible], left)
	return groups, rest, nil
}

// parts returns the driver's parts of m as values with a common split number.
func (m SMResource) parts(raw []driver.CUdevResource, left driver.CUdevResource) (groups []SMResource, rest SMResource) {
	split := splits.Add(1)
	groups = make([]SMResource, len(raw))
	for i := range raw {
		groups[i] = SMResource{m.device, raw[i], split}
	}
	return groups, SMResource{m.device, left, split}
}

// SMGroupOptions describes a group for [SMResource.SplitGroups].
type SMGroupOptions struct {
	// Count is the number of multiprocessors: a multiple of 2 and of Coscheduled, or 0
	// for all that are left.
	Count int
	// Coscheduled is the number of multiprocessors scheduled together, for clusters of
	// that many blocks. It is a multiple of 2 and at most 32 (2 before compute capability
	// 9.0), or 0 for as many as the device schedules together.
	Coscheduled int
	// PreferredCoscheduled is the number to schedule together where possible.
	PreferredCoscheduled int
	// Flags such as driver.CU_DEV_SM_RESOURCE_GROUP_BACKFILL, which gives Count
	// precedence over Coscheduled.
	Flags driver.CUdevSmResourceGroup_flags
	// LocalityDomain is used with driver.CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.
	LocalityDomain uint32
}

// SplitGroups divides m into groups of different sizes, without rounding, in order: each from what the previous ones
// leave. It returns [ErrRange] without groups or if a number is out of range, and [ErrNotSupported] with a driver
// before CUDA 13.1, which has [SMResource.Split] only. Source: cuDevSmResourceSplit.
func (m SMResource) SplitGroups(options ...SMGroupOptions) (groups []SMResource, rest SMResource, err error) {
	const op = "SMResource.SplitGroups"
	if len(options) == 0 || m.Count() == 0 {
		return nil, SMResource{}, refuse(op, ErrRange, "cannot make %d groups from %v", len(options), m)
	}
	params := make([]driver.CU_DEV_SM_RESOURCE_GROUP_PARAMS, len(options))
	for i, g := range options {
		if most := m.Count(); min(g.Count, g.Coscheduled, g.PreferredCoscheduled) < 0 || max(g.Count, g.Coscheduled, g.PreferredCoscheduled) > most {
			return nil, SMResource{}, refuse(op, ErrRange, "group %d: Count, Coscheduled and PreferredCoscheduled must be between 0 and %d", i, most)
		}
		params[i] = driver.CU_DEV_SM_RESOURCE_GROUP_PARAMS{
			SmCount: uint32(g.Count), CoscheduledSmCount: uint32(g.Coscheduled), PreferredCoscheduledSmCount: uint32(g.PreferredCoscheduled),
			Flags: g.Flags, LocalityDomainId: g.LocalityDomain,
		}
	}
	raw, left := make([]driver.CUdevResource, len(options)), driver.CUdevResource{}
	err = driver.CuDevSmResourceSplit(unsafe.SliceData(raw), uint32(len(raw)), &m.raw, &left, 0, unsafe.SliceData(params))
	if err != nil {
		return nil, SMResource{}, wrap(op, err)
	}
	groups, rest = m.parts(raw, left)
	return groups, rest, nil
}

// SMResource returns the multiprocessors that kernels on the stream may use: those of its
// green context, if it has one. It returns [ErrCapturing] if the stream is capturing, and
// [ErrNotSupported] with a driver before CUDA 12.4. Source: cuStreamGetDevResource;
// before CUDA 13.1 cuStreamGetGreenCtx, and cuGreenCtxGetDevResource or
// cuCtxGetDevResource.
func (s *Stream) SMResource() (SMResource, error) {
	const op = "Stream.SMResource"
	var m SMResource
	err := s.with(op, func(c *streamCore) error {
		m.device = c.ctx.device
		if c.capturing() {
			return refuse(op, ErrCapturing, "the driver does not tell for a capturing stream")
		}
		err := driver.CuStreamGetDevResource(c.raw, &m.raw, driver.CU_DEV_RESOURCE_TYPE_SM)
		if !errors.Is(err, ErrNotSupported) {
			return err
		}
		var green driver.CUgreenCtx
		if err := driver.CuStreamGetGreenCtx(c.raw, &green); err != nil {
			return err
		}
		if green == 0 {
			return driver.CuCtxGetDevResource(c.ctx.raw, &m.raw, driver.CU_DEV_RESOURCE_TYPE_SM)
		}
		if g := c.green; g != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
		}
		return driver.CuGreenCtxGetDevResource(green, &m.raw, driver.CU_DEV_RESOURCE_TYPE_SM)
	})
	return m, err
}
