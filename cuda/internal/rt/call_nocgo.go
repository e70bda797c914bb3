//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// mostOfFill is the most arguments of the launch of a [Copy].
const mostOfFill = 7

// do makes the call.
func (c *call) do() driver.CUresult {
	switch {
	case c.fn == fnLaunchKernel:
		var params [mostOfFill + 1]unsafe.Pointer
		r := c.once(params[:])
		runtime.KeepAlive(&params)
		return r
	case c.spin == 0:
		return c.once(nil)
	}
	for end := now() + c.spin; ; {
		if r := c.once(nil); r != driver.CUDA_ERROR_NOT_READY || now() >= end {
			return r
		}
	}
}

// once makes the check and the call once. params is room for the arguments of a launch.
func (c *call) once(params []unsafe.Pointer) driver.CUresult {
	var l list
	l.at(c.Home)
	l.in(c.CallContext, c.flags&relaxed != 0)
	l.checks(c)
	var made, query, wait *step
	if c.fn != none {
		made = l.itself(c, params)
		if c.flags&(waits|settles|marks) != 0 {
			query, wait = l.finish(c, made)
		}
	}
	r := l.do()
	runtime.KeepAlive(c)
	c.created = l.created
	if r == 0 && made != nil {
		r = driver.CUresult(made.result) // an error has not ended the list
	}
	if r == 0 && wait != nil {
		if query != nil && driver.CUresult(query.result) != driver.CUDA_ERROR_NOT_READY {
			wait = query
		}
		if r = driver.CUresult(wait.result); r != 0 && c.flags&settles != 0 {
			c.Home.Free(driver.CUdeviceptr(c.created), c.stream)
		}
	}
	if r == 0 && c.check == tell && l.capturing() {
		return CodeCaptured
	}
	return r
}

// checks adds what c.check asks for.
func (l *list) checks(c *call) {
	switch {
	case c.check == notCapturing:
		l.notCapturing(c.stream)
	case c.check == tell && c.stream > 1:
		l.askCapturing(c.stream).flags = anyResult // the call itself returns another error
	case c.check != unchecked:
		l.notLegacy(c.stream)
	}
}

// itself adds the call itself.
func (l *list) itself(c *call, params []unsafe.Pointer) *step {
	switch {
	case c.fn == fnLaunchKernel:
		fn, n := words{(*uint64)(unseen(c.host))}.from(1).launch(&l.call, params, c.stream)
		return l.next().set(fn, unsafe.Pointer(&l.call), n)
	case c.flags&creates != 0:
		l.result = (*uint64)(unseen(unsafe.Pointer(&l.created)))
		copy(l.call.words[:], c.args[1:])
		return l.next().set(cu[c.fn], unsafe.Pointer(&l.result), int(c.words))
	case c.host == nil:
		copy(l.call.words[:], c.args[:])
		return l.next().set(cu[c.fn], unsafe.Pointer(&l.call), int(c.words))
	}
	args := unsafe.Pointer(&l.call.pointer)
	if c.at == 1 {
		l.call.words[8] = c.args[0]
		args = unsafe.Pointer(&l.call.words[8])
	}
	l.call.pointer = unseen(c.host)
	copy(l.call.rest[:], c.args[1+c.at:])
	return l.next().set(cu[c.fn], args, int(c.words))
}

// finish adds what follows the call that made makes: a wait for the stream, which perhaps depends on
// a query of it.
func (l *list) finish(c *call, made *step) (query, wait *step) {
	l.asked.event, l.asked.stream = uint64(c.event), uint64(c.stream)
	stream := unsafe.Pointer(&l.asked.stream)
	switch {
	case c.flags&marks != 0:
		made.flags = anyResult
		l.next().set(cu[fnEventRecord], unsafe.Pointer(&l.asked), 2).unless(&made.result, uint64(driver.CUDA_ERROR_NOT_READY)).flags = unlessEqual
	case c.flags&waits != 0:
		made.flags = anyResult
		wait = l.next().set(cu[fnStreamSynchronize], stream, 1)
		wait.flags = anyResult
		// If the wait fails it waits once more, as the memory must not be freed during the copy.
		l.next().set(cu[fnStreamSynchronize], stream, 1).unless(&wait.result, 0).flags = anyResult
	case c.flags&settles != 0:
		query = l.next().set(cu[fnStreamQuery], stream, 1)
		query.flags = anyResult
		wait = l.next().set(cu[fnStreamSynchronize], stream, 1).unless(&query.result, uint64(driver.CUDA_ERROR_NOT_READY))
		wait.flags = anyResult | unlessEqual
	}
	return query, wait
}
