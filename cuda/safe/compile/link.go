package compile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nvjitlink"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Input is one of the pieces that [Link] links: CUDA C++ in Source, or compiled code in Code.
type Input struct {
	// Name is what messages call the input, and the File of a source.
	Name string
	// Source is CUDA C++, compiled with the Options of Link.
	Source string
	// Kernels are those of this source: see Options.Kernels.
	Kernels []string
	// Code is PTX, a cubin, LTO-IR, a fatbin, an object file or a library of objects with device
	// code, which is told from its content. Cubins that refer to other inputs must have been compiled as
	// relocatable code (nvcc -dc, or -rdc=true).
	Code []byte
}

// piece is an input as the linker takes it.
type piece struct {
	text
	kernels []string
	code    []byte
}

// Link links inputs to one image for the architecture o.Arch; each may use the functions and
// variables of the others. With o.LTO it also optimizes across those that are sources or LTO-IR.
// Set o.LTO too if fatbins, objects or libraries hold LTO-IR. Link makes machine code, or PTX
// if o.Format says so and all inputs are sources or LTO-IR.
//
// It needs nvJitLink, but neither a GPU nor a driver; NVRTC only for sources. It returns the
// errors of [Compile], an [*Error] if the linker fails, and one that matches
// [errors.ErrUnsupported] for LTO-IR that is newer than nvJitLink.
func Link(ctx context.Context, inputs []Input, o Options) (*Image, error) {
	const op = "Link"
	a, err := parseArch(o.Arch, o.Format)
	if err == nil {
		err = checkInputs(inputs, &o)
	}
	if ctx == nil {
		err = errNoContext
	}
	if err != nil {
		return nil, fail(op, err)
	}
	pieces := make([]piece, len(inputs))
	for n, in := range inputs {
		name := in.Name
		if name == "" {
			name = fmt.Sprintf("input %d", n+1)
		}
		pieces[n] = piece{text{file: name, source: in.Source}, in.Kernels, in.Code}
	}
	return link(ctx, op, a, pieces, o)
}

func checkInputs(inputs []Input, o *Options) error {
	switch {
	case len(inputs) == 0:
		return fmt.Errorf("%w: there are no inputs", safe.ErrInvalidArgument)
	case o.Format == LTOIR:
		return fmt.Errorf("%w: a linker makes no LTO-IR: use Compile", safe.ErrInvalidArgument)
	case len(o.Kernels) > 0:
		return fmt.Errorf("%w: Options.Kernels does not say of which source: set Input.Kernels", safe.ErrInvalidArgument)
	}
	for n, in := range inputs {
		if (in.Source == "") == (len(in.Code) == 0) {
			return fmt.Errorf("%w: input %d (%s) must have either Source or Code", safe.ErrInvalidArgument, n+1, in.Name)
		}
		if strings.Contains(in.Name, "\x00") {
			return fmt.Errorf("%w: the name %q has a zero byte", safe.ErrInvalidArgument, in.Name)
		}
	}
	return nil
}

// link compiles the sources among the pieces and links all.
func link(ctx context.Context, op string, a arch, pieces []piece, o Options) (*Image, error) {
	p, err := linked(ctx, a, pieces, o)
	if err != nil {
		return nil, fail(op, err)
	}
	return p.image(a, o), nil
}

func linked(ctx context.Context, a arch, pieces []piece, o Options) (*product, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o = o.clone()
	file, version, err := nvjitlink.Library()
	if err != nil {
		return nil, err
	}
	lto := o.LTO || o.Format == PTX
	names, log := map[string]string{}, ""
	for n := range pieces {
		in := &pieces[n]
		if len(in.code) == 0 {
			p, err := compilePiece(ctx, a, in, o, lto, version)
			if err != nil {
				return nil, err
			}
			in.code, log = p.Code, log+p.Log
			maps.Copy(names, p.Names)
		}
		if bytes.HasPrefix(in.code, []byte(ltoMagic)) {
			lto = true
		}
	}
	p, err := linkPieces(ctx, identified(file, version), linkFlags(a, &o, lto), pieces, &o)
	if err != nil {
		return nil, err
	}
	return &product{Code: p.Code, Names: names, Log: log + p.Log}, nil
}

// compilePiece compiles a source for the linker.
func compilePiece(ctx context.Context, a arch, in *piece, o Options, lto bool, linker string) (*product, error) {
	o.Kernels, o.LTO, o.Format = in.kernels, false, MachineCode
	if lto {
		o.Format = LTOIR
		c, err := loaded()
		if err != nil {
			return nil, err
		}
		if newer(c.version, linker) {
			return nil, fmt.Errorf("%w: nvJitLink %s cannot link LTO-IR of NVRTC %s: get a newer one with go run github.com/cudabind/cudabind/tools/libs@latest get nvjitlink, or link without LTO", errors.ErrUnsupported, linker, c.version)
		}
	}
	return compile(ctx, a, in.text, o, true)
}

// newer tells whether version a, such as 13.5, is newer than b.
func newer(a, b string) bool { return versionNumber(a) > versionNumber(b) }

// versionNumber is 13050 for 13.5.
func versionNumber(text string) int {
	major, minor, _ := strings.Cut(text, ".")
	m, _ := strconv.Atoi(major)
	n, _ := strconv.Atoi(minor)
	return 1000*m + 10*n
}

// linkFlags are nvJitLink's options.
func linkFlags(a arch, o *Options, lto bool) []string {
	flags := []string{"-arch=" + a.name(MachineCode), "-no-cache"} // its own cache starts the driver
	for _, f := range []struct {
		on   bool
		flag string
	}{
		{lto, "-lto"},
		{o.Format == PTX, "-ptx"},
		{o.Debug, "-g"},
		{o.LineInfo && !o.Debug, "-lineinfo"},
		{o.MaxRegisters > 0, "-maxrregcount=" + strconv.Itoa(o.MaxRegisters)},
	} {
		if f.on {
			flags = append(flags, f.flag)
		}
	}
	return append(flags, o.linkFlags(lto)...)
}

// arithmetic are nvJitLink's names of NVRTC's options for arithmetic, which count again where LTO-IR is optimized.
var arithmetic = map[string]string{"fmad": "fma", "ftz": "ftz", "prec-div": "prec-div", "prec-sqrt": "prec-sqrt"}

// linkFlags are those of o.Flags and o.FastMath that nvJitLink knows. Of several about the same, the last one counts.
func (o *Options) linkFlags(lto bool) (flags []string) {
	values := map[string]string{}
	if o.FastMath {
		values = map[string]string{"ftz": "1", "prec-div": "0", "prec-sqrt": "0"}
	}
	for _, flag := range o.Flags {
		name := flagName(flag)
		_, value, _ := strings.Cut(flag, "=")
		if to, ok := arithmetic[name]; ok {
			values[to] = "1"
			if value == "false" || value == "0" {
				values[to] = "0"
			}
		} else if (name == "Xptxas" || name == "ptxas-options") && value != "" {
			flags = append(flags, "-Xptxas="+value)
		}
	}
	if lto {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			flags = append(flags, "-"+name+"="+values[name])
		}
	}
	return flags
}

// linkPieces links compiled code, unless the cache has the result.
func linkPieces(ctx context.Context, c *compiler, flags []string, pieces []piece, o *Options) (*product, error) {
	k := key{sha256.New()}
	k.add("nvJitLink", c.version, c.identity, strconv.Itoa(len(flags)))
	k.add(flags...)
	for _, in := range pieces {
		k.add(in.file, string(in.code))
	}
	sum, store := k.sum(), o.cacheable()
	if store {
		p, err := await(ctx, func(*atomic.Int32) (*product, error) {
			cache, err := openCache(o)
			defer cache.close()
			return cache.get(sum), err
		})
		if p != nil || err != nil {
			return p, err
		}
	}
	for n := range pieces { // the linker cannot be stopped, and the caller's code may change after the end of ctx
		pieces[n].code = bytes.Clone(pieces[n].code)
	}
	return await(ctx, func(*atomic.Int32) (*product, error) {
		p, err := linkNow(flags, pieces, o.Format)
		var e *Error
		if errors.As(err, &e) {
			e.Hint = linkHint(e, c.version)
		}
		if err != nil || !store {
			return p, err
		}
		cache, err := openCache(o)
		defer cache.close()
		cache.put(sum, p)
		return p, err
	})
}

// linkHint says what to do about inputs that are too new.
func linkHint(e *Error, version string) string {
	if errors.Is(e.Err, nvjitlink.NVJITLINK_ERROR_OUTDATED_LIBRARY) || strings.Contains(e.Log, "newer version of nvJitLink") || strings.Contains(e.Log, "Unsupported .version") {
		e.Err = fmt.Errorf("%w: %w", errors.ErrUnsupported, e.Err)
		return "an input is of a newer CUDA version than nvJitLink " + version + ": get a newer one with go run github.com/cudabind/cudabind/tools/libs@latest get nvjitlink, or compile the input with an older compiler"
	}
	if errors.Is(e.Err, nvjitlink.NVJITLINK_ERROR_LTO_NOT_ENABLED) || strings.Contains(e.Log, "without LTO") {
		return "an input holds LTO-IR: set Options.LTO"
	}
	return ""
}

const (
	ltoMagic     = "\xed\x43\x4e\x7f"
	libraryMagic = "!<arch>\n"
)

// kindOf is the kind of an input: libraries are the only one that nvJitLink does not tell.
func kindOf(code []byte) nvjitlink.NvJitLinkInputType {
	if bytes.HasPrefix(code, []byte(libraryMagic)) {
		return nvjitlink.NVJITLINK_INPUT_LIBRARY
	}
	return nvjitlink.NVJITLINK_INPUT_ANY
}

// linkNow links the pieces.
func linkNow(flags []string, pieces []piece, f Format) (*product, error) {
	runtime.LockOSThread() // nvJitLink corrupts the heap if the calls for a link come from several
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	var h nvjitlink.NvJitLinkHandle
	err := nvjitlink.NvJitLinkCreate(&h, uint32(len(flags)), cStrings(flags, &pin))
	if h != 0 {
		defer nvjitlink.NvJitLinkDestroy(&h)
	}
	if err != nil {
		return nil, linkError(h, err)
	}
	for _, in := range pieces {
		code := in.code
		if bytes.Contains(code[:min(len(code), 4096)], []byte(".version")) {
			code = append(bytes.Clone(code), 0) // the linker reads PTX to its zero byte
		}
		if err := nvjitlink.NvJitLinkAddData(h, kindOf(code), unsafe.Pointer(&code[0]), uint64(len(code)), ffi.CString(in.file)); err != nil {
			return nil, linkError(h, err)
		}
	}
	if err := nvjitlink.NvJitLinkComplete(h); err != nil {
		return nil, linkError(h, err)
	}
	p := &product{Log: linkLog(h, nvjitlink.NvJitLinkGetErrorLogSize, nvjitlink.NvJitLinkGetErrorLog)}
	if failed := failures(parseLog(p.Log)); failed != nil {
		// After a link that failed on the same thread, undefined references are only in the log.
		return nil, &Error{Err: nvjitlink.NVJITLINK_ERROR_INTERNAL, Log: p.Log, Diagnostics: failed}
	}
	var n uint64
	if f == PTX {
		if err = nvjitlink.NvJitLinkGetLinkedPtxSize(h, &n); err == nil && n > 0 {
			p.Code = make([]byte, n)
			err = nvjitlink.NvJitLinkGetLinkedPtx(h, &p.Code[0])
			p.Code = bytes.TrimRight(p.Code, "\x00")
		}
	} else if err = nvjitlink.NvJitLinkGetLinkedCubinSize(h, &n); err == nil && n > 0 {
		p.Code = make([]byte, n)
		err = nvjitlink.NvJitLinkGetLinkedCubin(h, unsafe.Pointer(&p.Code[0]))
	}
	return p, err
}

// linkError adds the linker's messages to an error.
func linkError(h nvjitlink.NvJitLinkHandle, err error) error {
	log := ""
	if h != 0 {
		log = linkLog(h, nvjitlink.NvJitLinkGetErrorLogSize, nvjitlink.NvJitLinkGetErrorLog)
	}
	return &Error{Err: err, Log: log, Diagnostics: failures(parseLog(log))}
}

func linkLog(h nvjitlink.NvJitLinkHandle, size func(nvjitlink.NvJitLinkHandle, *uint64) error, get func(nvjitlink.NvJitLinkHandle, *byte) error) string {
	var n uint64
	if size(h, &n) != nil || n == 0 {
		return ""
	}
	text := make([]byte, n)
	if get(h, &text[0]) != nil {
		return ""
	}
	return strings.TrimRight(string(text), "\x00")
}
