package safe

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// SMs are multiprocessors of a device: all of them, or a part for a
// [GreenContext]. It is a plain value that reserves nothing and needs no closing.
// The zero value has no multiprocessors.
type SMResource struct {
	device Device
	raw    driver.CUdevResource
	cut    uint64 // the split that made them, 0 for none
}

// splits counts.
var splits atomic.Uint64

// SMs are all multiprocessors of the device. It needs a driver of CUDA 12.4.
// Source: cuDeviceGetDevResource.
func (d Device) SMResource() (SMResource, error) { return d.sms("Device.SMResource") }

func (d Device) sms(op string) (SMResource, error) {
	m := SMResource{device: d}
	err := d.get(op, func() error {
		return driver.CuDeviceGetDevResource(d.raw, &m.raw, driver.CU_DEV_RESOURCE_TYPE_SM)
	})
	return m, err
}

// Device is the GPU that they are of.
func (m SMResource) Device() Device { return m.device }

// Raw is the resource for calls of package driver.
func (m SMResource) Raw() driver.CUdevResource { return m.raw }

// Count is how many they are.
func (m SMResource) Count() int {
	if m.raw.Type != driver.CU_DEV_RESOURCE_TYPE_SM {
		return 0
	}
	return int(m.raw.Sm().SmCount)
}

// SmallestGroup is the size of the smallest group that [SMResource.Split] makes of them,
// 0 where the driver is older than CUDA 13.0 and does not tell.
func (m SMResource) SmallestGroup() int {
	if m.Count() == 0 || rt.Version < 13000 {
		return 0
	}
	return int(m.raw.Sm().MinSmPartitionSize)
}

// Alignment is what the sizes of groups are multiples of: so many lie together,
// and run clusters of that many blocks. It is 0 where the driver is older than
// CUDA 13.0 and does not tell.
func (m SMResource) Alignment() int {
	if m.Count() == 0 || rt.Version < 13000 {
		return 0
	}
	return int(m.raw.Sm().SmCoscheduledAlignment)
}

// String is for messages.
func (m SMResource) String() string {
	return fmt.Sprintf("%d multiprocessors of %v", m.Count(), m.device)
}

// SplitOptions are the choices at [SMResource.Split]. The zero value makes as many
// groups as there can be.
type SplitOptions struct {
	// Groups is how many to make, 0 for as many as possible.
	Groups int
	// Min is how many multiprocessors a group has at least. It is rounded up to
	// what the device can separate: to a multiple of 8 on compute capability 9.0.
	Min int
	// Flags such as driver.CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, for
	// finer groups that cannot run large clusters.
	Flags driver.CUdevSmResourceSplitByCount_flags
}

// Split splits all multiprocessors of the device: see [SMResource.Split].
func (d Device) Split(o SplitOptions) (groups []SMResource, rest SMResource, err error) {
	const op = "Device.Split"
	m, err := d.sms(op)
	if err != nil {
		return nil, SMResource{}, err
	}
	return m.split(op, o)
}

// Split makes groups of the same size, none of which shares a multiprocessor with
// another. rest is what is left over, which may be nothing; it promises neither
// clusters nor speed. More groups than there can be, and more multiprocessors than
// there are, are [ErrRange]. A group cannot be split again, but what
// [GreenContext.SMResource] returns can. It needs a driver of CUDA 12.4.
// Source: cuDevSmResourceSplitByCount.
func (m SMResource) Split(o SplitOptions) (groups []SMResource, rest SMResource, err error) {
	return m.split("SMResource.Split", o)
}

func (m SMResource) split(op string, o SplitOptions) (groups []SMResource, rest SMResource, err error) {
	least, possible := max(o.Min, 1), uint32(0)
	if o.Groups < 0 || least > m.Count() {
		return nil, SMResource{}, refuse(op, ErrRange, "%d groups of at least %d, of %v", o.Groups, least, m)
	}
	err = driver.CuDevSmResourceSplitByCount(nil, &possible, &m.raw, nil, uint32(o.Flags), uint32(least))
	if err != nil {
		return nil, SMResource{}, wrap(op, err)
	}
	if o.Groups > int(possible) || possible == 0 {
		return nil, SMResource{}, refuse(op, ErrRange, "%d groups of at least %d, and %v are enough for %d", o.Groups, least, m, possible)
	}
	if o.Groups > 0 {
		possible = uint32(o.Groups)
	}
	raw, left := make([]driver.CUdevResource, possible), driver.CUdevResource{}
	err = driver.CuDevSmResourceSplitByCount(unsafe.SliceData(raw), &possible, &m.raw, &left, uint32(o.Flags), uint32(least))
	if err != nil {
		return nil, SMResource{}, wrap(op, err)
	}
	groups, rest = m.parts(raw[:possible], left)
	return groups, rest, nil
}

// parts are values of what the driver has made of m.
func (m SMResource) parts(raw []driver.CUdevResource, left driver.CUdevResource) (groups []SMResource, rest SMResource) {
	split := splits.Add(1)
	groups = make([]SMResource, len(raw))
	for i := range raw {
		groups[i] = SMResource{m.device, raw[i], split}
	}
	return groups, SMResource{m.device, left, split}
}

// SMGroupOptions is what a group of [SMResource.SplitGroups] is to be like.
type SMGroupOptions struct {
	// Count is how many multiprocessors it has: a multiple of 2 and of
	// Coscheduled, 0 for as many as are left.
	Count int
	// Coscheduled is how many lie together, for clusters of that many blocks: a
	// multiple of 2 up to 32, and up to 2 before compute capability 9.0; 0 for
	// the device's [SMResource.Alignment].
	Coscheduled int
	// PreferredCoscheduled is how many lie together where that is possible.
	PreferredCoscheduled int
	// Flags such as driver.CU_DEV_SM_RESOURCE_GROUP_BACKFILL: the count matters
	// most.
	Flags driver.CUdevSmResourceGroup_flags
	// LocalityDomain is for driver.CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.
	LocalityDomain uint32
}

// SplitGroups makes groups of different sizes, which it rounds to nothing. They
// are made in order, each of what those before it have left over. It needs a
// driver of CUDA 13.1; before, there is [SMResource.Split]. Source: cuDevSmResourceSplit.
func (m SMResource) SplitGroups(wishes ...SMGroupOptions) (groups []SMResource, rest SMResource, err error) {
	const op = "SMResource.SplitGroups"
	if len(wishes) == 0 || m.Count() == 0 {
		return nil, SMResource{}, refuse(op, ErrRange, "%d groups of %v", len(wishes), m)
	}
	params := make([]driver.CU_DEV_SM_RESOURCE_GROUP_PARAMS, len(wishes))
	for i, g := range wishes {
		if most := m.Count(); min(g.Count, g.Coscheduled, g.PreferredCoscheduled) < 0 || max(g.Count, g.Coscheduled, g.PreferredCoscheduled) > most {
			return nil, SMResource{}, refuse(op, ErrRange, "group %d: a number is not between 0 and %d", i, most)
		}
		params[i] = driver.CU_DEV_SM_RESOURCE_GROUP_PARAMS{
			SmCount: uint32(g.Count), CoscheduledSmCount: uint32(g.Coscheduled), PreferredCoscheduledSmCount: uint32(g.PreferredCoscheduled),
			Flags: uint32(g.Flags), LocalityDomainId: g.LocalityDomain,
		}
	}
	raw, left := make([]driver.CUdevResource, len(wishes)), driver.CUdevResource{}
	err = driver.CuDevSmResourceSplit(unsafe.SliceData(raw), uint32(len(raw)), &m.raw, &left, 0, unsafe.SliceData(params))
	if err != nil {
		return nil, SMResource{}, wrap(op, err)
	}
	groups, rest = m.parts(raw, left)
	return groups, rest, nil
}

// SMs are the multiprocessors that kernels on the stream may run on: those of its
// green context, where it is of one. It needs a driver of CUDA 12.4. A capturing
// stream is [ErrCapturing]. Source: cuStreamGetDevResource; before CUDA 13.1
// cuStreamGetGreenCtx, and cuGreenCtxGetDevResource or cuCtxGetDevResource.
func (s *Stream) SMResource() (SMResource, error) {
	const op = "Stream.SMResource"
	var m SMResource
	err := s.with(op, func(c *streamCore) error {
		m.device = c.ctx.device
		if c.capturing() {
			return refuse(op, ErrCapturing, "it could not be asked")
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
