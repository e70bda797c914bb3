package fft

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// scaler divides the results of Inverse, which lie as the input of Forward.
type scaler struct {
	module driver.CUmodule
	kernel driver.CUfunction
	blocks uint32
	count  uint64 // of real numbers
	factor uint64 // a float64, or a float32 in the first bytes
	steps  steps
}

// steps are the dimensions of results that are not dense, in real numbers, the fastest first:
// the parts of an element, x, y, z and the batch, which needs no size. Parts have the step 1.
type steps struct {
	sizes [4]uint64 // of parts, x, y and z
	by    [4]uint64 // of x, y, z and the batch
}

const scaleThreads = 256

// create loads the kernel, while the context is current.
func (k *scaler) create(p *problem) error {
	name, image := scalePTX(p.from.bits, p.in.dense)
	if err := driver.CuModuleLoadData(&k.module, unsafe.Pointer(ffi.CString(image))); err != nil {
		return err
	}
	if err := driver.CuModuleGetFunction(&k.kernel, k.module, ffi.CString(name)); err != nil {
		return err
	}
	width := int64(1) // real numbers in an element
	if p.from.complex {
		width = 2
	}
	k.count = uint64(width * product(p.n[0], p.n[1], p.n[2], p.batch))
	k.blocks = uint32(min((k.count+scaleThreads-1)/scaleThreads, 16384))
	factor := 1 / float64(product(p.n[:]...))
	k.factor = uint64(math.Float32bits(float32(factor)))
	if p.from.bits == 64 {
		k.factor = math.Float64bits(factor)
	}
	k.steps = steps{sizes: [4]uint64{uint64(width), 1, 1, 1}}
	at := uint64(width * p.in.stride)
	for i := range p.rank {
		j := p.rank - 1 - i
		k.steps.sizes[1+i], k.steps.by[i] = uint64(p.n[j]), at
		at *= uint64(p.in.embed[j])
	}
	k.steps.by[3] = uint64(width * p.in.distance)
	return nil
}

func (k *scaler) destroy() error {
	if k.module == 0 {
		return nil
	}
	defer func() { *k = scaler{} }()
	return driver.CuModuleUnload(k.module)
}

// launch holds the parameters of a launch.
type launch struct {
	address driver.CUdeviceptr
	params  [4]unsafe.Pointer
}

func (l *launch) enqueue(k *scaler, results driver.CUdeviceptr, raw driver.CUstream) error {
	l.address = results
	l.params = [4]unsafe.Pointer{unsafe.Pointer(&l.address), unsafe.Pointer(&k.count), unsafe.Pointer(&k.factor), unsafe.Pointer(&k.steps)}
	return driver.CuLaunchKernel(k.kernel, k.blocks, 1, 1, scaleThreads, 1, 1, 0, raw, &l.params[0], nil)
}

// scalePTX returns a kernel that multiplies numbers of some bits, and its name. It suits every
// GPU that cuFFT of CUDA 12 does.
func scalePTX(bits int, dense bool) (name, image string) {
	float, load := "f32", "ld.global.f32 v, [a];"
	store := "st.global.f32 [a], v;"
	switch bits {
	case 64:
		float, load, store = "f64", "ld.global.f64 v, [a];", "st.global.f64 [a], v;"
	case 16:
		load, store = "ld.global.b16 h, [a]; cvt.f32.f16 v, h;", "cvt.rn.f16.f32 h, v; st.global.b16 [a], h;"
	}
	name, find := fmt.Sprintf("cudabind_fft_scale%d", bits), "mov.u64 a, i;"
	if !dense {
		name += "_strided"
		find = findStrided
	}
	return name, strings.NewReplacer("NAME", name, "FLOAT", float, "LOAD", load, "STORE", store, "FIND", find, "BYTES", fmt.Sprint(bits/8)).Replace(scaleTemplate)
}

const scaleTemplate = `.version 7.0
.target sm_50
.address_size 64
.visible .entry NAME(.param .u64 results, .param .u64 count, .param .FLOAT factor, .param .align 8 .b8 steps[64]) {
	.reg .pred done; .reg .b16 h; .reg .b32 u<4>; .reg .b64 p, n, i, a, w, r, s, t; .reg .FLOAT v, f;
	ld.param.u64 p, [results]; ld.param.u64 n, [count]; ld.param.FLOAT f, [factor];
	cvta.to.global.u64 p, p;
	mov.u32 u0, %ctaid.x; mov.u32 u1, %ntid.x; mov.u32 u2, %tid.x; mov.u32 u3, %nctaid.x;
	mul.wide.u32 i, u0, u1; cvt.u64.u32 w, u2; add.u64 i, i, w; mul.wide.u32 w, u1, u3;
next:
	setp.ge.u64 done, i, n; @done bra end;
	FIND
	mad.lo.u64 a, a, BYTES, p;
	LOAD mul.FLOAT v, v, f; STORE
	add.u64 i, i, w; bra next;
end:
	ret;
}
`

// findStrided makes a the place of number i: a remainder for each dimension.
const findStrided = `ld.param.u64 s, [steps]; rem.u64 a, i, s; div.u64 r, i, s;
	ld.param.u64 s, [steps+8]; rem.u64 t, r, s; div.u64 r, r, s; ld.param.u64 s, [steps+32]; mad.lo.u64 a, t, s, a;
	ld.param.u64 s, [steps+16]; rem.u64 t, r, s; div.u64 r, r, s; ld.param.u64 s, [steps+40]; mad.lo.u64 a, t, s, a;
	ld.param.u64 s, [steps+24]; rem.u64 t, r, s; div.u64 r, r, s; ld.param.u64 s, [steps+48]; mad.lo.u64 a, t, s, a;
	ld.param.u64 s, [steps+56]; mad.lo.u64 a, r, s, a;`
