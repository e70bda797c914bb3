package safe

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A block is a piece of memory, of which Buffers are views. It remembers the streams
// whose work uses it: it is freed after that work, and synchronous copies wait for it.
type block struct {
	// What usual reads stands together: a call finds little of it in the caches, after the driver's own.
	of    *block           // the block that a texture, a surface or an external buffer accesses: retained, and used with it
	graph *graphAllocation // of memory that the launches of a graph allocate, or nil
	ctx   *contextCore
	streamUses
	lifetime.Handle

	address driver.CUdeviceptr // at which kernels access it; 0 if they cannot
	host    unsafe.Pointer     // at which the host accesses it; nil if it cannot
	size    uint64
	free    func(*block) error // called with the context current; nil if other code owns the memory
	home    *streamCore        // the stream that it was allocated in the order of, or nil
	pool    *poolCore          // the pool that the program named, or nil
	heap    *heap              // the pool of NewBuffer if it was allocated there, or nil
	pinner  *runtime.Pinner    // of registered Go memory
	owner   any                // of borrowed memory: kept reachable until the work that uses that has completed
	onHost  bool               // with graph: host memory
	foreign bool               // other code has allocated it, maybe in a pool or an address range
	lent    atomic.Int32       // calls of EnqueueRaw that need the address, also once it is closed
	peers   []Device           // with graph: other devices that have access
	last    pendingWork        // the work that a release waits for
	view    *mappedView        // of virtual memory: the part that the block covers

	resource *resource // of a Resource, which has no memory
}

const memoryNoun = "memory"

// noun says for messages what the block is.
func (b *block) noun() string {
	switch {
	case b.resource != nil:
		return "resource"
	case b.of != nil && b.address == 0:
		return "texture or surface"
	}
	return memoryNoun
}

// known returns the uses of the memory. All views of an address range share them.
func (b *block) known() *streamUses {
	if b.view != nil {
		return &b.view.space.uses
	}
	return &b.streamUses
}

// note records that work on s uses the block and the block that it accesses. s.mu is
// held.
func (b *block) note(s *streamCore) {
	b.known().note(s)
	if b.of != nil {
		b.of.note(s)
	}
}

// use records that work on s uses the block, and reports whether the block is open and the
// work may use it. s.mu is held until that work is enqueued. Close sets the closed bit,
// then locks the mu of every user: either it finds s among them, or use finds the block
// closed.
func (b *block) use(s *streamCore) bool {
	b.note(s)
	return !b.Closed() && b.usableIn(s.capture.Load())
}

// usual returns whether work on s may use the block, has used it before, and is in no capture, as in most calls: then
// there is nothing to record. It is false for virtual memory, whose users are those of the address range. s.mu is held.
func (b *block) usual(s *streamCore, capture *capturing) bool {
	return capture == nil && b.users[0].Load() == s && b.of == nil && b.graph == nil && b.ctx.same(s.ctx) && !b.Closed()
}

// usableIn returns whether work that a capture captures may use the memory or, if there is none, whether
// work may use it now. The capture is locked.
func (b *block) usableIn(capture *capturing) bool {
	if capture == nil {
		return b.allocated()
	}
	return !capture.hasFreed(b)
}

// unusable returns the error for a block that use refuses.
func (b *block) unusable(op string) error {
	if b.Closed() {
		return &Error{Op: op, Err: ErrClosed}
	}
	return &Error{Op: op, Err: ErrNotAllocated}
}

// allocate opens a block by calling do with the context current. c is acquired.
func (b *block) allocate(c *contextCore, do func() error) error {
	b.ctx = c
	return b.opened(c.allocating(do))
}

// opened opens a block that was allocated, unless err tells that it was not.
func (b *block) opened(err error) error {
	if err != nil {
		return b.outOfMemory(err)
	}
	if err := b.Open(b, b.keeper()); err != nil {
		return errors.Join(err, b.freeMemory())
	}
	return nil
}

// unlessEmpty returns do, which allocates or checks the memory of b. If b is empty, nothing
// is allocated or freed.
func (b *block) unlessEmpty(do func() error) func() error {
	if b.size > 0 {
		return do
	}
	b.address, b.free = 0, nil
	return func() error { return nil }
}

// ofNothing is where the host finds the values of an empty block.
var ofNothing [16]byte

// allocating calls do with the context current. If it runs out of memory, it makes room and calls do again.
func (c *contextCore) allocating(do func() error) error {
	return reclaiming(func() error { return c.withCurrent(do) })
}

// reclaiming calls do, and calls it again as long as it runs out of memory and makeRoom makes some.
// Every call that takes memory of the device goes through it, with nothing locked.
func reclaiming(do func() error) error { return retrying(do(), do) }

// retrying calls do again as long as err, of the call before, tells that memory is exhausted and makeRoom makes some.
func retrying(err error, do func() error) error {
	for tries := 0; makeRoom(err, tries); tries++ {
		err = do()
	}
	return err
}

// makeRoom returns memory to the system after a call that has returned err because there was none. It
// returns false if err is another error, or after several tries.
func makeRoom(err error, tries int) bool {
	return errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY) && lifetime.MakeRoom(tries)
}

// allocateOnDevice opens a block of device memory: of the context's heap, or with plain, and
// where there are no pools, of cuMemAlloc. The context is acquired.
func (b *block) allocateOnDevice(plain bool) error {
	c := b.ctx
	do := b.unlessEmpty(func() error {
		if !plain {
			ready, err := c.shared.heap.ready(c)
			if err != nil {
				return err
			}
			if ready {
				return b.fromHeap()
			}
		}
		return c.withCurrent(func() error { return driver.CuMemAlloc(&b.address, b.size) })
	})
	return b.opened(reclaiming(do))
}

// fromHeap allocates the block. Any stream may use it at once.
func (b *block) fromHeap() error {
	h := &b.ctx.shared.heap
	if rt.InCallback() {
		return rt.CodeCallback
	}
	if address, ok := h.cache.take(b.size); ok {
		b.address, b.heap = address, h
		return nil
	}
	a := rt.Alloc{Home: b.ctx.home(), Stream: h.stream, Pool: h.pool.raw, Size: b.size, Complete: 1}
	return hostWaits.With(uint32(uintptr(unsafe.Pointer(b))>>7), func() error { // it may wait for the stream
		if code := a.Do(); code != 0 {
			return code
		}
		b.address, b.heap = a.Address, h
		return nil
	})
}

// allocateOn opens a block in the order of a stream, which is acquired, from a pool unless
// that is 0.
func (b *block) allocateOn(s *streamCore, c *contextCore, pool driver.CUmemoryPool) error {
	b.home, b.ctx = s, c
	b.users[0].Store(s)
	return b.opened(reclaiming(b.unlessEmpty(func() error {
		a := admission{stream: s, flags: asks}
		if err := a.admit(); err != nil {
			return err
		}
		defer a.leave(true)
		s.used = true
		m := rt.Alloc{Home: s.home(), Stream: s.raw, Pool: pool, Size: b.size}
		if code := m.Do(); code != 0 {
			return code
		}
		b.address = m.Address
		return nil
	})))
}

// keeper returns the parent of the block: the context, or the pool or the block that it
// is part of, which retain the context.
func (b *block) keeper() *lifetime.Handle {
	switch {
	case b.pool != nil:
		return &b.pool.Handle
	case b.of != nil:
		return &b.of.Handle
	}
	return &b.ctx.Handle
}

func (b *block) Kind() string {
	if b.resource != nil {
		return "Resource"
	}
	return "block of memory"
}

func (b *block) Destroy(wait bool) error {
	if b.resource != nil {
		return b.destroyResource()
	}
	err := b.destroyMemory(wait)
	if err != nil && !lifetime.Postponed(err) && b.pool != nil {
		b.pool.lost.Store(true)
	}
	return err
}

func (b *block) destroyMemory(wait bool) error {
	if b.free == nil {
		// Until then, the owner, the module or the context may free the memory. A range waits itself.
		if b.view == nil && b.size > 0 && !b.last.over(b.known(), false) {
			return lifetime.ErrLater
		}
		b.owner = nil
		b.view.close()
		return nil
	}
	locks := wait // waiting for locks is brief, unlike waiting for the GPU
	if b.home != nil {
		wait = false // Close returns at once
		if b.only(b.home) && !b.last.marked {
			if done, err := b.home.freeHere(b); done {
				return err
			}
		}
	}
	for !b.last.over(b.known(), locks) {
		if !wait || !b.last.marked {
			return lifetime.ErrLater
		}
		b.last.wait()
	}
	switch {
	case b.home != nil:
		if done, err := b.freeAside(); done {
			return err
		}
	case !wait && b.heap == nil:
		return &lifetime.Elsewhere{Queue: &b.ctx.shared.frees}
	}
	return b.freeMemory()
}

// place says where a block of memory is.
func (b *block) place() string {
	switch {
	case b.host == nil:
		return "on " + b.ctx.device.String()
	case b.managed():
		return "in managed memory"
	}
	return "on the host"
}

// toHeap gives the memory back: to the heap's cache, or to the pool.
func (b *block) toHeap() error {
	h := b.heap
	if !h.cache.takes(b.size) {
		return b.toPool(b.address)
	}
	var err error
	for _, old := range h.cache.put(cachedBlock{b.address, b.size}) {
		err = errors.Join(err, b.toPool(old.address))
	}
	return err
}

// toPool frees memory of the block's heap.
func (b *block) toPool(address driver.CUdeviceptr) error {
	_, err := b.freed(b.ctx.home().Free(address, b.heap.stream))
	return err
}

const closing = "Close" // of a buffer, of whatever kind

// freeMemory frees the block. The work that uses it has completed.
func (b *block) freeMemory() error {
	if b.heap != nil {
		return b.toHeap()
	}
	if b.graph != nil && !b.graph.leave() {
		return nil
	}
	err := b.ctx.destroying(closing, func() error {
		return hostWaits.With(0, func() error { return b.free(b) }) // CUDA waits for the context's work first
	})
	if b.pinner != nil && err == nil {
		b.pinner.Unpin()
	} else if b.pinner != nil { // the driver may still use the addresses: never unpin
		stranded.keep(*b.pinner)
	}
	return err
}

// stranded holds pins that are never released: Go crashes a program that drops one.
var stranded pins

type pins struct {
	admit.Leaf // guards of
	of         []runtime.Pinner
}

func (p *pins) keep(pin runtime.Pinner) {
	p.Lock()
	defer p.Unlock()
	p.of = append(p.of, pin)
}

// freeHere frees a block in the order of the stream, unless the stream is closed, is
// capturing, or is in use by another call.
func (s *streamCore) freeHere(b *block) (done bool, err error) {
	if !s.mu.TryLock() {
		return false, nil
	}
	defer s.mu.Unlock()
	if s.over || s.capture.Load() != nil {
		return false, nil
	}
	if s.legacy() {
		if !s.ctx.shared.legacy.Enter() {
			return false, nil
		}
		defer s.ctx.shared.legacy.Leave()
	}
	s.released()
	return b.freed(s.home().FreeAsync(b.address, s.raw))
}

// freeAside frees a block on an idle internal stream, if there is one. The work that uses
// the block has completed.
func (b *block) freeAside() (done bool, err error) {
	shared := b.ctx.shared
	shared.releasing.Lock() // one stream is enough, and the driver may wait before it creates another
	defer shared.releasing.Unlock()
	stream, err := shared.releases.get(b.ctx)
	if err != nil {
		return err == rt.CodeReset, nil
	}
	defer shared.releases.put(stream, math.MaxInt32)
	return b.freed(b.ctx.home().FreeAsync(b.address, stream))
}

// freed translates the result of a stream-ordered release. A reset of the context by other code has freed
// the memory already.
func (b *block) freed(code driver.CUresult) (done bool, err error) {
	switch code {
	case rt.CodeCapturing:
		return false, nil
	case rt.CodeReset:
		return true, nil
	}
	return true, check(closing, code)
}

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

// managed reports whether a Buffer's block is managed memory. The host can also access
// host memory of pools and graphs.
func (b *block) managed() bool {
	return b.host != nil && !b.onHost && (b.pool == nil || b.pool.managed)
}

// hostPointer returns an address of managed memory as a pointer of the host.
func hostPointer(address driver.CUdeviceptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// mapped returns the address at which devices access the block's host memory at data.
func (b *block) mapped(op string, data unsafe.Pointer) (driver.CUdeviceptr, error) {
	if b.size == 0 {
		return 0, nil
	}
	if b.address == 0 {
		return 0, refuse(op, ErrInvalidArgument, "the device cannot access this pinned memory")
	}
	return b.address + driver.CUdeviceptr(uintptr(data)-uintptr(b.host)), nil
}

// A mappedView is the part of a range that a Buffer covers: it retains the mappings.
type mappedView struct {
	space *rangeCore
	parts []*mapping
}
