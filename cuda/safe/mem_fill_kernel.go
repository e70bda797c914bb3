package safe

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// fillKernels are the kernels of a context that fill memory, from the first use to the end of the context.
type fillKernels struct {
	moduleCore
	blocks    uint64 // that keep the device busy
	functions [len(fillWords) * len(fillRooms)]atomic.Uintptr
}

// fillKernels returns the context's kernels, and loads them if it is the first to ask.
func (c *contextCore) fillKernels() (*fillKernels, error) {
	if k := c.shared.fills.Load(); k != nil {
		return k, nil
	}
	processors, err := c.device.known(driver.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
	if err != nil {
		return nil, err
	}
	k := &fillKernels{blocks: 8 * uint64(processors)}
	k.ctx = c
	options, err := LoadOptions{}.compiler("")
	if err != nil {
		return nil, err
	}
	defer options.unpin()
	if err := c.allocating(func() error { return k.load([]byte(fillPTX()), options) }); err != nil {
		return nil, options.explain(wrap("", err))
	}
	if !c.shared.fills.CompareAndSwap(nil, k) {
		if err := k.unload(""); err != nil {
			return nil, err
		}
	}
	return c.shared.fills.Load(), nil
}

// function returns the kernel that writes words of a size and takes values of up to room bytes.
func (k *fillKernels) function(word, room uint64) (driver.CUfunction, error) {
	i := 0
	for fillWords[i%len(fillWords)] != word || uint64(fillRooms[i/len(fillWords)]) != room {
		i++
	}
	if f := k.functions[i].Load(); f != 0 {
		return driver.CUfunction(f), nil
	}
	var f driver.CUfunction
	err := k.ctx.allocating(func() error { return k.find(&f, fillName(word, int(room))) })
	k.functions[i].Store(uintptr(f))
	return f, err
}

// endFills unloads the kernels with the end of the context.
func (c *contextCore) endFills(op string) error {
	k := c.shared.fills.Swap(nil)
	if k == nil {
		return nil
	}
	k.ctx = c
	return k.unload(op)
}

var (
	fillWords = [...]uint64{8, 4, 1}
	fillRooms = [...]int{64, mostOfValue}
)

func fillName(word uint64, room int) string {
	return "cudabind_fill" + strconv.FormatUint(word, 10) + "_" + strconv.Itoa(room)
}

// fillPTX returns the kernels, for every GPU that CUDA 11.8 and newer have.
func fillPTX() string {
	text := ".version 6.0\n.target sm_50\n.address_size 64\n"
	for _, room := range fillRooms {
		for _, word := range fillWords {
			text += strings.NewReplacer("NAME", fillName(word, room), "ROOM", strconv.Itoa(room),
				"WORD", strconv.FormatUint(word, 10), "BITS", strconv.FormatUint(8*word, 10)).Replace(fillKernel)
		}
	}
	return text
}

// fillKernel is one of them. A thread takes one word of the value, and writes it to every step-th word of
// every so many rows, so that it divides once.
const fillKernel = `
.visible .entry NAME(
	.param .u64 to, .param .u64 pitch, .param .u64 rows, .param .u64 all, .param .u32 step, .param .u32 words, .param .align 8 .b8 value[ROOM]
)
{
	.reg .pred %p<3>;
	.reg .b32 %r<8>;
	.reg .b64 %d<14>;
	.reg .b64 %word;

	mov.u32 %r0, %ctaid.x;
	mov.u32 %r1, %ntid.x;
	mov.u32 %r2, %tid.x;
	mad.lo.u32 %r0, %r0, %r1, %r2; // the column
	ld.param.u32 %r1, [step];
	setp.ge.u32 %p0, %r0, %r1;
	@%p0 bra DONE;
	ld.param.u32 %r2, [words];
	rem.u32 %r2, %r0, %r2;
	mul.lo.u32 %r2, %r2, WORD;
	cvt.u64.u32 %d0, %r2;
	mov.b64 %d1, value;
	add.u64 %d1, %d1, %d0;
	ld.param.uBITS %word, [%d1];

	mov.u32 %r3, %ctaid.y;
	mov.u32 %r4, %ntid.y;
	mov.u32 %r5, %tid.y;
	mad.lo.u32 %r3, %r3, %r4, %r5; // the row
	cvt.u64.u32 %d2, %r3;
	mov.u32 %r5, %nctaid.y;
	mul.lo.u32 %r4, %r4, %r5;
	cvt.u64.u32 %d3, %r4; // rows from one to the next
	ld.param.u64 %d4, [to];
	cvta.to.global.u64 %d4, %d4;
	ld.param.u64 %d5, [pitch];
	ld.param.u64 %d6, [rows];
	ld.param.u64 %d7, [all];
	cvt.u64.u32 %d8, %r0;
	cvt.u64.u32 %d9, %r1;
	mul.lo.u64 %d10, %d9, WORD;
	mad.lo.u64 %d4, %d8, WORD, %d4; // the column of row 0
ROW:
	setp.ge.u64 %p1, %d2, %d6;
	@%p1 bra DONE;
	mad.lo.u64 %d11, %d2, %d5, %d4;
	mov.u64 %d12, %d8;
COLUMN:
	setp.ge.u64 %p2, %d12, %d7;
	@%p2 bra NEXT;
	st.global.uBITS [%d11], %word;
	add.u64 %d11, %d11, %d10;
	add.u64 %d12, %d12, %d9;
	bra COLUMN;
NEXT:
	add.u64 %d2, %d2, %d3;
	bra ROW;
DONE:
	ret;
}
`
