//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A list is the calls of a function of this package, which enter C once. It lies on the
// stack: its pointers into itself are hidden from the compiler, and move along.
type list struct {
	n     int
	steps [14]step

	getCurrent *uint64
	exchange   *uint64

	home struct {
		context uint64
		now     *uint64
	}
	asked struct {
		event  uint64 // to record on the stream
		stream uint64
		status *uint64
	}
	ask    int     // the step that asks for the status
	result *uint64 // the first argument of a call that creates something, before the others in call
	call   callArgs

	// These are also readable after all arguments.

	context uint64 // to make current
	before  uint64 // the current one before
	mode    uint64 // the thread's capture mode before, or RELAXED, which need not be restored
	id      uint64 // that the context has now
	status  uint64
	created uint64
}

// A list must not be larger: Go takes longer to make it zero then.
var _ [1024 - unsafe.Sizeof(list{})]byte

// callArgs are the arguments of a call. Those of cuLaunchKernel are 11. Those of a copy from the host
// begin with the last word, and those of one to the host with the pointer.
type callArgs struct {
	words   [9]uint64
	pointer unsafe.Pointer
	rest    [3]uint64
}

// unseen returns p, hidden from the compiler's escape analysis. In between it is a number, which
// does not follow a stack that moves: nothing may be called there, also not a check.
//
//go:nocheckptr
func unseen(p unsafe.Pointer) unsafe.Pointer {
	address := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// set makes s a call. At args are at least 8 words that can be read.
func (s *step) set(fn uintptr, args unsafe.Pointer, words int) *step {
	s.fn, s.args, s.words = fn, unseen(args), uintptr(words)
	return s
}

// unless skips a call if the word equals value, or passes a test.
func (s *step) unless(word *uint64, value uint64) *step {
	s.word, s.value = (*uint64)(unseen(unsafe.Pointer(word))), value
	return s
}

// copyWord makes s a copy of a word, when the steps before have been made.
func (s *step) copyWord(to, from *uint64) {
	s.args, s.word, s.flags = unseen(unsafe.Pointer(to)), (*uint64)(unseen(unsafe.Pointer(from))), copied
}

// next returns the next step of the list.
func (l *list) next() *step {
	l.n++
	return &l.steps[l.n-1]
}

// in makes the calls that follow in a context, or in the thread's own if that is 0, and in
// the capture mode RELAXED if relaxed is set.
func (l *list) in(context driver.CUcontext, relaxed bool) {
	l.mode = uint64(unchanged)
	if context != 0 {
		l.context, l.before = uint64(context), uint64(context)
		l.getCurrent = (*uint64)(unseen(unsafe.Pointer(&l.before)))
		l.next().set(cu[fnCtxGetCurrent], unsafe.Pointer(&l.getCurrent), 1)
		l.next().set(cu[fnCtxSetCurrent], unsafe.Pointer(&l.context), 1).unless(&l.before, l.context)
	}
	if relaxed {
		l.exchange = (*uint64)(unseen(unsafe.Pointer(&l.mode)))
		l.next().set(cu[fnExchangeMode], unsafe.Pointer(&l.exchange), 1).flags = anyResult
	}
}

// at ends the list with CodeReset if h.Context no longer has the ID. An ID of 0 is not
// compared.
func (l *list) at(h Home) {
	if h.ID != 0 && cu[fnCtxGetID] != 0 {
		l.home.context, l.id = uint64(h.Context), h.ID
		l.home.now = (*uint64)(unseen(unsafe.Pointer(&l.id)))
		s := l.next().set(cu[fnCtxGetID], unsafe.Pointer(&l.home), 2)
		s.flags = anyResult // the call itself returns any other error than these
		l.test(&l.id, h.ID, 0)
		l.test(&s.result, uint64(driver.CUDA_ERROR_INVALID_CONTEXT), unlessEqual)
		l.test(&s.result, uint64(driver.CUDA_ERROR_CONTEXT_IS_DESTROYED), unlessEqual)
	}
}

// test ends the list with CodeReset unless the word equals value.
func (l *list) test(word *uint64, value, flags uint64) {
	s := l.next().unless(word, value)
	s.flags, s.result = flags, uint64(CodeReset)
}

// askCapturing asks whether the stream is capturing.
func (l *list) askCapturing(stream driver.CUstream) *step {
	l.asked.stream, l.asked.status = uint64(stream), (*uint64)(unseen(unsafe.Pointer(&l.status)))
	l.ask = l.n
	return l.next().set(cu[fnIsCapturing], unsafe.Pointer(&l.asked.stream), 2)
}

// capturing tells whether the stream was capturing.
func (l *list) capturing() bool {
	return l.status != 0 || driver.CUresult(l.steps[l.ask].result) == driver.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT // the legacy stream while a blocking stream captures
}

// notCapturing ends the list with CodeCapturing if the stream is capturing.
func (l *list) notCapturing(stream driver.CUstream) {
	l.askCapturing(stream)
	l.next().unless(&l.status, 0).result = uint64(CodeCapturing)
}

// notLegacy ends the list with CodeCapturing if the stream is the legacy stream and a blocking stream is capturing,
// whose capture the call would invalidate.
func (l *list) notLegacy(stream driver.CUstream) {
	if stream <= 1 {
		l.notCapturing(stream)
	}
}

// do makes the calls, and restores the thread's context and mode.
func (l *list) do() driver.CUresult {
	if InCallback() {
		return CodeCallback
	}
	if l.exchange != nil {
		l.next().set(cu[fnExchangeMode], unsafe.Pointer(&l.exchange), 1).unless(&l.mode, uint64(unchanged)).flags = evenAfterEnd
	}
	if l.context != 0 {
		l.next().set(cu[fnCtxSetCurrent], unsafe.Pointer(&l.before), 1).unless(&l.before, l.context).flags = evenAfterEnd
	}
	return l.make()
}

// make makes the calls.
func (l *list) make() driver.CUresult {
	if l.n == 0 {
		return 0
	}
	code, at := makeSteps(&l.steps[0], l.n)
	if code != 0 && l.asked.status != nil && at == l.ask && l.capturing() {
		return CodeCapturing
	}
	return driver.CUresult(code)
}
