package safe

import (
	"fmt"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// onHost tells outOfMemory that the memory requested is the host's.
const onHost = " of host memory"

// outOfMemory makes an out-of-memory error tell how many bytes were requested, where, and
// what the notes add; they are called only for such an error. It returns others unchanged.
func outOfMemory(err error, size uint64, where string, notes ...func() string) error {
	if err != driver.CUDA_ERROR_OUT_OF_MEMORY {
		return err
	}
	var parts []string
	if size > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes%s requested", size, where))
	}
	for _, note := range notes {
		if text := note(); text != "" {
			parts = append(parts, text)
		}
	}
	return &Error{Code: driver.CUDA_ERROR_OUT_OF_MEMORY, Err: err, Detail: strings.Join(parts, ", ")}
}

func (b *block) outOfMemory(err error) error {
	switch p := b.pool; {
	case p == nil:
		return outOfMemory(err, b.size, "", b.ctx.noteFree)
	case p.onHost:
		return outOfMemory(err, b.size, onHost, p.noteUse)
	default:
		return outOfMemory(err, b.size, "", p.noteUse, p.ctx.noteFree)
	}
}

// noteFree tells how much of the device's memory is free, "" if the driver does not.
func (c *contextCore) noteFree() string {
	var free, total uint64
	if c.withCurrent(func() error { return driver.CuMemGetInfo(&free, &total) }) != nil {
		return ""
	}
	return fmt.Sprintf("%d of %d bytes free on %v", free, total, c.device)
}

// noteUse tells how much of the pool is in use, "" if the driver does not: its limit may
// be the cause.
func (p *poolCore) noteUse() string {
	var used uint64
	err := p.ctx.withCurrent(func() error { return p.fetch(driver.CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) })
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of the pool in use", used)
}
