package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// SetAccess lets kernels on a device use the memory of the pool
// (driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE), or no longer
// (driver.CU_MEM_ACCESS_FLAGS_PROT_NONE): what is allocated already, too. What
// [Context.EnablePeerAccess] allows does not count for pools. Take nothing back while
// work of that device uses the memory. Taking it from the context's own device is
// [ErrInvalidArgument], and a device that cannot reach it is
// driver.CUDA_ERROR_INVALID_DEVICE. Source: cuMemPoolSetAccess.
func (p *Pool) SetAccess(d Device, flags driver.CUmemAccess_flags) error {
	const op = "Pool.SetAccess"
	return p.do(op, func(c *poolCore) error {
		if d.raw == c.ctx.device.raw && flags != fullAccess {
			return refuse(op, ErrInvalidArgument, "%v is the pool's own", d)
		}
		return c.setAccess(d, flags)
	})
}

// setAccess is made with the context current.
func (p *poolCore) setAccess(d Device, flags driver.CUmemAccess_flags) error {
	access := driver.CUmemAccessDesc{Location: d.location(), Flags: flags}
	return driver.CuMemPoolSetAccess(p.raw, &access, 1)
}

// Access is what kernels on a device may do with the memory of the pool.
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

// openHere lets the context's device use the pool: host memory, and what another
// process has on another device, is open to none at first. The context is current.
func (p *poolCore) openHere() error {
	d := p.ctx.device
	flags, err := poolAccess(p.raw, d)
	if err != nil || flags == fullAccess {
		return err
	}
	return p.setAccess(d, fullAccess)
}

// mayUse tells whether kernels of c can reach a block, such as one that all of them
// reach. For memory of another device that came from a pool the driver has to be asked.
func (c *contextCore) mayUse(b *block) bool {
	switch {
	case c.same(b.ctx) || b.managed():
		return true
	case b.view != nil:
		return b.view.reachedBy(c.device)
	case b.graph || b.of != nil: // a texture is of its context
		return false
	case b.home == nil && b.pool == nil:
		return c.reaches(b.ctx)
	}
	var flags driver.CUmemAccess_flags
	err := c.withCurrent(func() error {
		pool, err := b.poolOf()
		if err == nil {
			flags, err = poolAccess(pool, c.device)
		}
		return err
	})
	return err == nil && flags == fullAccess
}
