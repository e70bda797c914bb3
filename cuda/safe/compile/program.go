package compile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe"
)

// unit is all that one program of NVRTC is made of.
type unit struct {
	file, source string
	headers      []header
	kernels      []string
	flags        []string
	format       Format
}

// header is one that NVRTC gets as text, for the words between the quotes of an #include.
type header struct{ name, text string }

// product is what a compiler makes of a unit.
type product struct {
	Code  []byte
	Names map[string]string // of Options.Kernels
	Log   string
}

// await calls do on a goroutine of its own and waits for it or for the end of ctx. do goes on
// if that comes first; it should notice that stop is not 0. A panic of do, which calls the caller's
// file systems, becomes one of the caller.
func await[T any](ctx context.Context, do func(stop *atomic.Int32) (T, error)) (T, error) {
	type outcome struct {
		value    T
		err      error
		panicked any
	}
	var none T
	if ctx == nil {
		return none, errNoContext
	}
	if err := context.Cause(ctx); err != nil {
		return none, err
	}
	stop := new(atomic.Int32)
	done := make(chan outcome, 1)
	go func() {
		o := outcome{err: errEnded}
		defer func() {
			o.panicked = recover()
			done <- o
		}()
		o.value, o.err = do(stop)
	}()
	select {
	case o := <-done:
		if o.panicked != nil {
			panic(o.panicked)
		}
		return o.value, o.err
	case <-ctx.Done():
		stop.Store(1)
		return none, context.Cause(ctx)
	}
}

// errNoContext is returned for a nil context.Context.
var errNoContext = fmt.Errorf("%w: the context.Context is nil", safe.ErrInvalidArgument)

var errEnded = errors.New("a file system has ended the goroutine that read it")

// cStrings returns strings as an array of C, pinned until pin is unpinned; nil for none.
func cStrings(all []string, pin *runtime.Pinner) **byte {
	if len(all) == 0 {
		return nil
	}
	list := make([]*byte, len(all))
	for i, s := range all {
		list[i] = ffi.CString(s)
		pin.Pin(list[i])
	}
	return &list[0]
}

// compile makes a program, compiles it once and destroys it: the results of a second compilation
// would not replace all of the first's.
func (u *unit) compile(stop *atomic.Int32) (p *product, err error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	var names, texts []string
	for _, h := range u.headers {
		names, texts = append(names, h.name), append(texts, h.text)
	}
	var program nvrtc.NvrtcProgram
	if err := nvrtc.NvrtcCreateProgram(&program, ffi.CString(u.source), ffi.CString(u.file), int32(len(names)), cStrings(texts, &pin), cStrings(names, &pin)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nvrtc.NvrtcDestroyProgram(&program)) }()
	pin.Pin(stop) // NVRTC keeps the address until the program is destroyed
	err = nvrtc.NvrtcSetFlowCallback(program, nvrtc.NvrtcSetFlowCallback_callback(stopped), uintptr(unsafe.Pointer(stop)))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	for _, k := range u.kernels {
		if err := nvrtc.NvrtcAddNameExpression(program, ffi.CString(k)); err != nil {
			return nil, err
		}
	}
	defer restoreSignals()()
	failed := nvrtc.NvrtcCompileProgram(program, int32(len(u.flags)), cStrings(u.flags, &pin))
	p = &product{Names: map[string]string{}}
	if text, err := u.read(program, nvrtc.NvrtcGetProgramLogSize, nvrtc.NvrtcGetProgramLog); err == nil {
		p.Log = strings.Trim(string(text), "\x00")
	}
	if failed != nil {
		return nil, &Error{Err: failed, Log: p.Log, Diagnostics: failures(parseLog(p.Log))}
	}
	return p, u.results(program, p)
}

// restoreSignals restores Go's handlers of signals every few milliseconds until stop, and then: NVRTC before CUDA 13.1
// breaks some as soon as it has read the source, long before the call returns.
func restoreSignals() (stop func()) {
	stopped := make(chan struct{})
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				restore()
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		stopped <- struct{}{}
		restore()
	}
}

// restore restores Go's handlers. NVRTC also puts one back where the program ignores the signal by now.
func restore() {
	for _, s := range ffi.RestoreSignals() {
		if signal.Ignored(s) {
			signal.Ignore(s)
		}
	}
}

// results copies the code and the symbols.
func (u *unit) results(program nvrtc.NvrtcProgram, p *product) (err error) {
	switch u.format {
	case PTX:
		p.Code, err = u.read(program, nvrtc.NvrtcGetPTXSize, nvrtc.NvrtcGetPTX)
		p.Code = bytes.TrimRight(p.Code, "\x00")
	case LTOIR:
		p.Code, err = u.read(program, nvrtc.NvrtcGetLTOIRSize, nvrtc.NvrtcGetLTOIR)
	default:
		p.Code, err = u.read(program, nvrtc.NvrtcGetCUBINSize, nvrtc.NvrtcGetCUBIN)
	}
	if err != nil {
		return err
	}
	for _, k := range u.kernels {
		var symbol *byte
		if err := nvrtc.NvrtcGetLoweredName(program, ffi.CString(k), &symbol); err != nil {
			return err
		}
		if symbol == nil {
			return nvrtc.NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID
		}
		p.Names[k] = ffi.GoString(symbol)
	}
	return nil
}

// read copies one result.
func (u *unit) read(program nvrtc.NvrtcProgram, size func(nvrtc.NvrtcProgram, *uint64) error, get func(nvrtc.NvrtcProgram, *byte) error) ([]byte, error) {
	var n uint64
	if err := size(program, &n); err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	return b, get(program, &b[0])
}
