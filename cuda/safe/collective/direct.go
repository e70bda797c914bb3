package collective

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
)

// enqueueListed enqueues the operations, those of one stream by one call from Go into C where that is possible.
func (b *batch) enqueueListed() error {
	if len(b.on) == 1 {
		made, err := safe.EnqueueCalls(b.on[0], b.prepare)
		if b.passed {
			err = both(b.called(made), err)
		}
		if made || err != nil {
			return err
		}
	}
	return safe.EnqueueRaw(b.enqueue, b.on...)
}

// prepared returns the calls of NCCL that pass makes, for operations on one stream. It locks the communicators then,
// until called.
func (b *batch) prepared(s driver.CUstream) []safe.RawCall {
	if b.lock() != nil { // pass returns the error
		return nil
	}
	defer func() {
		if !b.passed {
			b.unlock()
		}
	}()
	group := len(b.calls) > 1
	b.direct = b.direct[:0]
	if group {
		b.direct = append(b.direct, safe.RawCall{Address: groupStart()})
	}
	for i := range b.calls {
		address := b.calls[i].address()
		if address == 0 {
			return nil
		}
		b.direct = append(b.direct, safe.RawCall{Address: address})
		b.calls[i].args(&b.direct[len(b.direct)-1].Args, s)
	}
	if group {
		b.direct = append(b.direct, safe.RawCall{Address: groupEnd(), Always: true})
	}
	b.passed = true
	return b.direct
}

// called returns the first error of the calls.
func (b *batch) called(made bool) error {
	defer b.unlock()
	b.passed = made
	if !made {
		return nil
	}
	for i := range b.direct {
		if result := b.direct[i].Result; result != 0 {
			return b.result(nccl.NcclResult_t(result))
		}
	}
	return nil
}

var (
	groupStart = safe.Symbol(nccl.Library, "ncclGroupStart")
	groupEnd   = safe.Symbol(nccl.Library, "ncclGroupEnd")
	// symbols are the functions of the operations that are one call of NCCL of any version.
	symbols = [...]func() uintptr{
		allReduce:     safe.Symbol(nccl.Library, "ncclAllReduce"),
		reduce:        safe.Symbol(nccl.Library, "ncclReduce"),
		reduceScatter: safe.Symbol(nccl.Library, "ncclReduceScatter"),
		allGather:     safe.Symbol(nccl.Library, "ncclAllGather"),
		broadcast:     safe.Symbol(nccl.Library, "ncclBroadcast"),
	}
)

// address returns the address of the only function of NCCL that the operation calls, or 0.
func (k *call) address() uintptr {
	if int(k.kind) >= len(symbols) || k.reduction != nil && k.reduction.scaled {
		return 0
	}
	return symbols[k.kind]()
}

// args sets the arguments of that function.
func (k *call) args(args *[8]uint64, s driver.CUstream) {
	list := append(args[:0], uint64(k.src), uint64(k.dst), k.count, uint64(k.element))
	if k.reduces() {
		list = append(list, uint64(k.reduction.code))
	}
	if k.kind == reduce || k.kind == broadcast {
		list = append(list, uint64(uint32(k.peer)))
	}
	_ = append(list, uint64(*k.core.raw), uint64(s))
}
