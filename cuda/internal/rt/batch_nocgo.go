//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// words is a list, or the rest of one. It has no length: a list says how long it is.
type words struct{ first *uint64 }

func (w words) at(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(w.first), 8*uintptr(i)))
}

func (w words) from(i uint32) words { return words{w.at(i)} }

// dims returns the configuration of a kernel from its four words, and the number of arguments.
func (w words) dims() (c driver.CUlaunchConfig, args uint32) {
	d := (*[8]uint32)(unsafe.Pointer(w.first))
	return driver.CUlaunchConfig{
		GridDimX: d[0], GridDimY: d[1], GridDimZ: d[2],
		BlockDimX: d[3], BlockDimY: d[4], BlockDimZ: d[5], SharedMemBytes: d[6],
	}, d[7]
}

// pointInto makes params point to n arguments in a list, from word at on. Each is its size in
// words, and its value.
func (w words) pointInto(params []unsafe.Pointer, at, n uint32) {
	for i := range n {
		params[i] = unseen(unsafe.Pointer(w.at(at + 1)))
		at += 1 + uint32(*w.at(at))
	}
}

// launchAlone makes a launch, with attributes or many arguments.
func (w words) launchAlone(stream driver.CUstream) driver.CUresult {
	c, args := w.from(1).dims()
	c.HStream, c.NumAttrs = stream, uint32(*w.at(5))
	if c.NumAttrs > 0 {
		c.Attrs = (*driver.CUlaunchAttribute)(unsafe.Pointer(w.at(6)))
	}
	var usual [usualArgs]unsafe.Pointer
	params := params(&usual, args)
	w.pointInto(params, 6+attributeWords*c.NumAttrs, args)
	return code(driver.CuLaunchKernelEx(&c, driver.CUfunction(*w.first), &params[0], nil))
}

// launch makes args those of a launch without attributes, and returns its function and their number.
// params has room for one more than the kernel's arguments.
func (w words) launch(args *callArgs, params []unsafe.Pointer, stream driver.CUstream) (fn uintptr, n int) {
	d := (*[8]uint32)(unsafe.Pointer(w.at(1))) // as in dims
	w.pointInto(params, 6, d[7])
	args.words[0] = *w.first
	for i, n := range d[:7] {
		args.words[1+i] = uint64(n)
	}
	args.words[8], args.pointer = uint64(stream), unseen(unsafe.Pointer(&params[0]))
	return cu[fnLaunchKernel], 11
}

// A chunk is calls of a list that enter C once.
type chunk struct {
	n, used int // calls, and elements of params
	steps   [16]step
	args    [16]callArgs
	params  [128]unsafe.Pointer
	_       [8]uint64 // readable after all arguments
}

// add adds the call at w, unless there is no room for it, or it is made alone.
func (k *chunk) add(w words, stream driver.CUstream) bool {
	if k.n == len(k.steps) {
		return false
	}
	var fn uintptr
	n, size, args, call := 0, int(w.size()), &k.args[k.n], listed(uint32(*w.first))
	switch w = w.from(1); call {
	case launchCall:
		params, count := k.params[k.used:], int(*w.at(4)>>32)
		if *w.at(5) > 0 || count >= len(params) {
			return false
		}
		k.used += count + 1
		fn, n = w.launch(args, params, stream)
	case otherCall:
		fn = cu[uint32(*w.first)]
		n = copy(args.words[:6], unsafe.Slice(w.at(1), size-2))
		args.words[*w.first>>32] = uint64(stream)
	default: // noCall
		return false
	}
	k.steps[k.n].set(fn, unsafe.Pointer(args), n)
	k.n++
	return true
}

// run makes the calls of a list for [Batch].
func run(context driver.CUcontext, stream driver.CUstream, first *uint64, n int, outside bool) uint64 {
	var l list
	l.in(context, true)
	if outside || stream <= 1 {
		l.notCapturing(stream)
	}
	var s Scope
	if r := s.begin(&l); r != 0 {
		return uint64(r)
	}
	defer s.end()
	r, done := driver.CUresult(0), 0
	var k chunk
	// A pointer to the end of a list could be one into memory that Go has freed, where the garbage
	// collector must not see it.
	for w, at := (words{first}), uint32(0); r == 0 && done < n; {
		k.n, k.used = 0, 0
		for done+k.n < n && k.add(w.from(at), stream) {
			at += w.from(at).size()
		}
		if k.n > 0 {
			code, made := makeSteps(&k.steps[0], k.n)
			r, done = driver.CUresult(code), done+made
			continue
		}
		if listed(uint32(*w.at(at))) == launchCall { // else noCall
			if r = w.from(at + 1).launchAlone(stream); r != 0 {
				break
			}
		}
		at, done = at+w.from(at).size(), done+1
	}
	return uint64(done)<<32 | uint64(r)
}

// size returns the number of words of the call at w.
func (w words) size() uint32 { return uint32(*w.first >> 32) }
