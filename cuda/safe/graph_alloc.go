package safe

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// AllocOptions are the options of [AddAllocWith]. The zero value is memory of the graph's
// device, which only that device can access.
type AllocOptions struct {
	// Location is where the memory resides. The zero value is the device of the graph's
	// context. It may also be [HostLocation] or a [NUMALocation], which need a driver for
	// CUDA 13.0. For managed memory it is the preferred location, and the zero value is
	// none.
	Location Location
	// Managed makes the memory managed, as that of [NewManagedBuffer]. It needs a driver
	// for CUDA 13.0.
	Managed bool
	// Access lists other devices whose kernels may access the memory: see
	// [Device.CanAccessPeer]. Every device can access managed memory.
	Access []Device
}

// AddAllocWith adds a node that allocates memory as that of [AddAlloc] does, with options. If the memory is host or
// managed memory, [Buffer.Data] gives the host access from the completion of the node until the memory is freed. An
// access at another time crashes the process. It returns [ErrNotSupported] if the driver lacks a feature that the
// options ask for, and [ErrInvalidArgument] if Location is another device or has an ID that CUDA does not know, or if
// Access is set for managed memory. Source: cuGraphAddMemAllocNode.
func AddAllocWith[T any](g *Graph, n int, o AllocOptions, deps ...Node) (*Buffer[T], Node, error) {
	const op = "AddAlloc"
	size, err := sizeOfSome[T](n)
	if err != nil {
		return nil, Node{}, wrap(op, err)
	}
	var b *block
	var node Node
	err = reclaiming(func() error {
		return g.change(op, func(g *graphCore) (err error) {
			b = &block{size: size, graph: newGraphAllocation()}
			node, err = b.addTo(op, g, o, deps)
			return err
		})
	})
	if err != nil {
		return nil, Node{}, err
	}
	return &Buffer[T]{memory: &memory{block: b}, address: b.address, n: n}, node, nil
}

// addTo adds the node that allocates b. The graph is locked and the context current.
func (b *block) addTo(op string, g *graphCore, o AllocOptions, deps []Node) (Node, error) {
	before, _, err := g.dependencies(op, deps, nil)
	if err != nil {
		return Node{}, err
	}
	p := driver.CUDA_MEM_ALLOC_NODE_PARAMS{Bytesize: b.size}
	if err := o.set(op, &p.PoolProps, g.ctx.device); err != nil {
		return Node{}, err
	}
	access := o.access(g.ctx.device)
	if len(access) > 0 {
		p.AccessDescs, p.AccessDescCount = &access[0], uint64(len(access))
		var pin runtime.Pinner
		pin.Pin(p.AccessDescs)
		defer pin.Unpin()
	}
	if err := b.Open(b, &g.ctx.Handle); err != nil {
		return Node{}, err
	}
	var raw driver.CUgraphNode
	if err := driver.CuGraphAddMemAllocNode(&raw, g.raw, unsafe.SliceData(before), uint64(len(before)), &p); err != nil {
		b.Close()
		return Node{}, outOfMemory(err, b.size, o.where(), g.ctx.noteFree)
	}
	b.ctx, b.address, b.peers, b.onHost = g.ctx, p.Dptr, slices.Clone(o.Access), o.onHost()
	b.free = (*block).graphFree
	if o.Managed || b.onHost {
		b.host = hostPointer(b.address)
	}
	k := newRetained()
	k.retain(&b.Handle, b.TryRetain) // launches use it, also those of graphs without other nodes that do
	k.allocates(b)
	g.kept.add(raw, k)
	return g.named(raw, driver.CU_GRAPH_NODE_TYPE_MEM_ALLOC), nil
}

// set sets the options as CUDA takes them.
func (o *AllocOptions) set(op string, p *driver.CUmemPoolProps, d Device) error {
	if err := o.Location.checkIfAny(op); err != nil {
		return err
	}
	p.AllocType, p.Location = driver.CU_MEM_ALLOCATION_TYPE_PINNED, o.Location.raw()
	switch {
	case o.Managed && len(o.Access) > 0:
		return refuse(op, ErrInvalidArgument, "every device can access managed memory: leave Access empty")
	case o.Managed:
		p.AllocType = driver.CU_MEM_ALLOCATION_TYPE_MANAGED
		return needsDriver(op, 13000, "managed memory of a graph")
	case o.Location == Location{}:
		p.Location = d.location()
	case o.onHost():
		return needsDriver(op, 13000, "host memory of a graph")
	case p.Location != d.location():
		return refuse(op, ErrInvalidArgument, "the location is %s, but the graph's context is of %v", o.Location.text(), d)
	}
	return nil
}

// access lists the devices that need CUDA's leave, for host memory also the graph's own.
func (o *AllocOptions) access(own Device) (access []driver.CUmemAccessDesc) {
	if o.onHost() {
		access = append(access, driver.CUmemAccessDesc{Location: own.location(), Flags: fullAccess})
	}
	for _, d := range o.Access {
		if d.raw != own.raw {
			access = append(access, driver.CUmemAccessDesc{Location: d.location(), Flags: fullAccess})
		}
	}
	return access
}

// onHost returns whether the memory is the host's and not managed.
func (o *AllocOptions) onHost() bool {
	t := o.Location.Type
	return !o.Managed && (t == driver.CU_MEM_LOCATION_TYPE_HOST || t == driver.CU_MEM_LOCATION_TYPE_HOST_NUMA)
}

func (o *AllocOptions) where() string {
	if o.onHost() {
		return onHost
	}
	return ""
}
