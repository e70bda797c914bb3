package safe

import (
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// SetAccess sets what kernels on a device may do with the pool's memory, including memory
// that is allocated already: all (driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE) or nothing
// (driver.CU_MEM_ACCESS_FLAGS_PROT_NONE). [Context.EnablePeerAccess] has no effect on
// pools. Do not revoke access while the device uses the memory. SetAccess waits until calls
// of this package that copy between devices have returned. It returns [ErrInvalidArgument]
// if it would revoke the access of the pool's own device, and
// driver.CUDA_ERROR_INVALID_DEVICE if d cannot access the memory.
// Source: cuMemPoolSetAccess.
func (p *Pool) SetAccess(d Device, flags driver.CUmemAccess_flags) error {
	const op = "Pool.SetAccess"
	return p.do(op, func(c *poolCore) error {
		if d.raw == c.ctx.device.raw && flags != fullAccess {
			return refuse(op, ErrInvalidArgument, "%v is the pool's own device, which always has access", d)
		}
		return c.setAccess(d, flags)
	})
}

// setAccess is called with the context current.
func (p *poolCore) setAccess(d Device, flags driver.CUmemAccess_flags) error {
	access := driver.CUmemAccessDesc{Location: d.location(), Flags: flags}
	set := func() error { return driver.CuMemPoolSetAccess(p.raw, &access, 1) }
	if d.raw == p.ctx.device.raw && !p.imported { // imported memory may be on another device
		return set()
	}
	return peerCopies.Exclusive(set)
}

// Access returns what kernels on a device may do with the pool's memory.
// Source: cuMemPoolGetAccess.
func (p *Pool) Access(d Device) (flags driver.CUmemAccess_flags, err error) {
	err = p.do("Pool.Access", func(c *poolCore) error {
		flags, err = poolAccess(c.raw, d)
		return err
	})
	return flags, err
}

func poolAccess(raw driver.CUmemoryPool, d Device) (flags driver.CUmemAccess_flags, err error) {
	location := d.location()
	err = driver.CuMemPoolGetAccess(&flags, raw, &location)
	return flags, err
}

// grantAccess gives the context's device access to the pool, which it lacks at first if
// the memory is the host's, or on another device and imported. The context is current.
func (p *poolCore) grantAccess() error {
	d := p.ctx.device
	flags, err := poolAccess(p.raw, d)
	if err != nil || flags == fullAccess {
		return err
	}
	return p.setAccess(d, fullAccess)
}

// mayUse reports whether kernels of c can access a block. For memory on another device that is, or
// may be, of a pool, it asks the driver.
func (c *contextCore) mayUse(b *block) bool {
	switch {
	case c.same(b.ctx):
		return true
	case b.managed():
		return true
	case b.view != nil:
		return b.view.reachedBy(c.device)
	case b.graph != nil:
		return slices.Contains(b.peers, c.device)
	case b.of != nil: // a texture or surface works in its own context only
		return false
	case b.home == nil && b.pool == nil && !b.foreign:
		return c.reaches(b.ctx)
	}
	var flags driver.CUmemAccess_flags
	err := c.withCurrent(func() error {
		pool, err := b.poolOf()
		switch {
		case err != nil:
			return err
		case pool != 0:
			flags, err = poolAccess(pool, c.device)
		case c.reaches(b.ctx):
			flags = fullAccess
		}
		return err
	})
	return err == nil && flags == fullAccess
}
