package safe

import (
	"fmt"
	"slices"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// Batch is a list of operations for a stream: launches, copies, fills, event records and
// waits, graph launches and host functions. [Batch.Submit] enqueues all of them, with one
// call into C for hundreds, which costs far less than single calls. A Batch can be
// submitted any number of times, on any streams of its context.
//
// Operations have numbers from 0 in the order in which they were recorded.
// [Batch.SetLaunch], [SetBatchCopy] and [SetBatchFill] change one; they and the other
// changes affect later submissions only.
//
// A Batch retains nothing: an object that is closed makes Submit return [ErrClosed]. But
// objects that are only dropped stay usable as long as the Batch is reachable. Any number
// of goroutines may use a Batch at once. It needs no Close.
type Batch struct{ *batchCore }

// A batchCore is what a Batch and its copies share.
type batchCore struct {
	ctx *contextCore

	mu      admit.Leaf // guards the fields below; not held during calls of the driver
	list    batchList
	at      map[*lifetime.Handle]int32 // index of list.objects, once there are many
	reading *int                       // the number of submissions that read list
	stale   bool                       // objects may have some that no operation uses
	spare   batchList                  // refs and objects for reuse
}

// A batchList is what a submission reads: after it has begun, elements are added to the
// slices, but none is changed.
type batchList struct {
	words   []uint64 // the calls, for package rt
	ops     []batchOp
	refs    []int32 // indices in objects of what each operation uses
	objects []batchObject
	special int  // operations other than plain ones
	current bool // a call needs the context to be current
	across  bool // a copy is between devices, or was before it was replaced
}

type batchKind uint8

const (
	batchLaunch batchKind = iota
	batchCopies
	batchFills
	batchRecord
	batchWait
	batchGraph
	batchHost
)

var batchKinds = [...]string{"launch", "copy", "fill", "record", "wait", "graph launch", "host function"}

type batchOp struct {
	kind         batchKind
	alone        bool // uses memory that a graph allocates: a single call checks that
	uncapturable bool // a copy between devices
	places       int32
	word, words  int32 // part of batchList.words
	from, to     int32 // part of batchList.refs
	kernel       *Kernel
}

// plain tells whether the operation needs nothing but its objects and a place in the queue.
func (o *batchOp) plain() bool { return o.kind <= batchFills && o.places == 1 && !o.alone }

// takesMemory tells whether the driver may allocate memory for the operation.
func (o *batchOp) takesMemory() bool { return o.kind == batchLaunch || o.kind == batchGraph }

// A batchObject is an object that operations use, listed once for all of them.
type batchObject struct {
	handle *lifetime.Handle
	user   any // keeps the object from being collected
	block  *block
	event  *eventCore
	exec   *execCore
	host   *hostCore
	reach  bool  // kernels access the block, which may belong to another context
	first  int32 // an operation that uses it
}

// NewBatch returns an empty Batch for streams of x.
func NewBatch(x *Context) (*Batch, error) {
	c, err := x.acquire("NewBatch")
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return &Batch{&batchCore{ctx: c, reading: new(int)}}, nil
}

// none returns whether b is nil or a zero value.
func (b *Batch) none() bool { return b == nil || b.batchCore == nil }

// Len returns the number of operations.
func (b *Batch) Len() int {
	if b.none() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.list.ops)
}

// Reset removes all operations. Recording others then reuses the memory. Submissions in
// progress are not affected.
func (b *Batch) Reset() {
	if b.none() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.list.objects {
		if h := b.list.objects[i].host; h != nil {
			h.CloseLater()
		}
	}
	if *b.reading > 0 {
		b.list, b.spare, b.reading = batchList{}, batchList{}, new(int)
	} else {
		l := &b.list
		clear(l.objects)
		clear(l.ops)
		*l = batchList{words: l.words[:0], ops: l.ops[:0], refs: l.refs[:0], objects: l.objects[:0]}
	}
	b.at, b.stale = nil, false
}

// mostWords is how many words a batch has before its last operation, so that int32 counts them. It
// is a variable for tests.
var mostWords = 1 << 30

// appended is the number of an operation to add. -1 is the number of none.
const appended = -2

// start begins operation n, which replaces one of the same kind unless it is appended. mu
// is held until finish.
func (b *Batch) start(op string, n int, kind batchKind) (batchOp, error) {
	l := &b.list
	if len(l.words) > mostWords {
		return batchOp{}, refuse(op, ErrRange, "the batch takes more than %d bytes: record the rest in another one", mostWords*8)
	}
	if n != appended {
		if n < 0 || n >= len(l.ops) {
			return batchOp{}, refuse(op, ErrRange, "operation %d of a batch of %d", n, len(l.ops))
		}
		if l.ops[n].kind != kind {
			return batchOp{}, refuse(op, ErrInvalidArgument, "operation %d is a %s", n, batchKinds[l.ops[n].kind])
		}
		b.own()
	}
	return batchOp{kind: kind, places: 1, word: int32(len(l.words)), from: int32(len(l.refs))}, nil
}

// own copies what a submission reads, if there is one, so that it can be changed.
func (b *Batch) own() {
	if *b.reading == 0 {
		return
	}
	l := &b.list
	l.words, l.ops = slices.Clone(l.words), slices.Clone(l.ops)
	l.refs, l.objects = slices.Clone(l.refs), slices.Clone(l.objects)
	b.reading, b.spare = new(int), batchList{}
}

// use adds an object to those of operation n, which is the last of refs.
func (b *Batch) use(n int, o batchObject) {
	l := &b.list
	i := l.find(b.at, o.handle)
	if i < 0 {
		i = int32(len(l.objects))
		if n == appended {
			n = len(l.ops)
		}
		o.first = int32(n)
		l.objects = append(l.objects, o)
		b.remember()
	} else if o.reach && !l.objects[i].reach {
		b.own()
		b.list.objects[i].reach = true
	}
	b.list.refs = append(b.list.refs, i)
}

// usesAgain is use if the object is listed already.
func (b *Batch) usesAgain(h *lifetime.Handle, reach bool) bool {
	l := &b.list
	i := l.find(b.at, h)
	if i < 0 || reach && !l.objects[i].reach {
		return false
	}
	l.refs = append(l.refs, i)
	return true
}

// find returns the index of an object, or -1.
func (l *batchList) find(at map[*lifetime.Handle]int32, h *lifetime.Handle) int32 {
	if at != nil {
		if i, ok := at[h]; ok {
			return i
		}
		return -1
	}
	for i := range l.objects {
		if l.objects[i].handle == h {
			return int32(i)
		}
	}
	return -1
}

// remember adds the last object to the index.
func (b *Batch) remember() {
	objects := b.list.objects
	switch last := len(objects) - 1; {
	case b.at != nil:
		b.at[objects[last].handle] = int32(last)
	case len(objects) > few:
		b.at = make(map[*lifetime.Handle]int32, 2*len(objects))
		for i := range objects {
			b.at[objects[i].handle] = int32(i)
		}
	}
}

// finish completes the operation that start began, whose words and refs are the last.
func (b *Batch) finish(n int, o batchOp) {
	l := &b.list
	o.words, o.to = int32(len(l.words))-o.word, int32(len(l.refs))
	if n == appended {
		l.ops = append(l.ops, batchOp{})
		n = len(l.ops) - 1
	} else {
		b.replace(n, &o)
		if !l.ops[n].plain() {
			l.special--
		}
	}
	if !o.plain() {
		l.special++
	}
	l.ops[n] = o
}

// replace moves the words and refs of o, the last ones, to operation n.
func (b *Batch) replace(n int, o *batchOp) {
	l, old := &b.list, b.list.ops[n]
	fresh := l.words[o.word:]
	l.words = l.words[:o.word]
	if o.words == old.words {
		copy(l.words[old.word:], fresh)
	} else {
		l.words = slices.Replace(l.words, int(old.word), int(old.word+old.words), slices.Clone(fresh)...)
		for i := range l.ops[n+1:] {
			l.ops[n+1+i].word += o.words - old.words
		}
	}
	o.word = old.word
	if slices.Equal(l.refs[old.from:old.to], l.refs[o.from:o.to]) {
		l.refs = l.refs[:o.from]
		o.from, o.to = old.from, old.to
	} else {
		b.stale = true
	}
}

// compact removes the objects that no operation uses any more.
func (b *Batch) compact() {
	b.own()
	old := b.list
	b.list.refs, b.list.objects = b.spare.refs[:0], b.spare.objects[:0]
	b.at, b.stale = nil, false
	for n := range b.list.ops {
		o := &b.list.ops[n]
		refs := old.refs[o.from:o.to]
		o.from = int32(len(b.list.refs))
		for _, i := range refs {
			b.use(n, old.objects[i])
		}
		o.to = int32(len(b.list.refs))
	}
	clear(old.objects)
	b.spare.refs, b.spare.objects = old.refs, old.objects
}

// A hostCore is a Go function that submissions of a Batch call. Its token is valid until the
// work of all submissions has completed.
type hostCore struct {
	lifetime.Handle
	token uintptr
	uses  streamUses
	last  pendingWork
}

// A hostCall is a host function in a Batch.
type hostCall struct {
	core    *hostCore
	f       func()
	cleanup lifetime.Cleanup
}

func newHostCall(f func()) (*hostCall, error) {
	h := &hostCore{}
	if err := h.Open(h, nil); err != nil {
		return nil, err
	}
	h.Untracked()
	h.token = (&closure{host: f, repeat: true}).keep()
	u := &hostCall{core: h, f: f}
	u.cleanup.Watch(&h.Handle)
	return u, nil
}

func (h *hostCore) Kind() string { return "host function" }

func (h *hostCore) Destroy(bool) error {
	if !h.last.over(&h.uses, false) {
		return lifetime.ErrLater
	}
	forget(h.token)
	return nil
}

// String describes the batch for messages.
func (b *Batch) String() string {
	if b.none() {
		return neverOpened("Batch")
	}
	return fmt.Sprintf("Batch: %d operations on %v", b.Len(), b.ctx.device)
}
