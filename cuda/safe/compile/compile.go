package compile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Load compiles CUDA C++ and loads it into x: machine code for its device, or PTX if o.Format says so. If the device is
// newer than the NVRTC at hand knows, NVRTC compiles PTX for the newest architecture that it knows, which the driver
// then compiles. Load returns an [*Error] with the compiler's messages if the source does not compile, one that matches
// [errors.ErrUnsupported] if NVRTC is not found or no longer compiles for the device, and one that wraps the cause of
// ctx if ctx ends first. It returns safe.ErrClosed if x is closed.
func Load(ctx context.Context, x *safe.Context, source string, o Options) (*safe.Module, error) {
	return load(ctx, "Load", x, text{o.File, source, nil}, o)
}

// LoadFile compiles a file and loads it: see [Load].
func LoadFile(ctx context.Context, x *safe.Context, file string, o Options) (*safe.Module, error) {
	source, err := await(ctx, func(*atomic.Int32) (string, error) {
		source, _, err := readFile(file, maxText)
		return source, err
	})
	if err != nil {
		return nil, fail("LoadFile", err)
	}
	return load(ctx, "LoadFile", x, text{file, source, nil}, o)
}

// LoadFS compiles a file of a file system, such as embed.FS, and loads it: see [Load]. Headers
// that are not in o.Headers are looked for in files.
func LoadFS(ctx context.Context, x *safe.Context, files fs.FS, name string, o Options) (*safe.Module, error) {
	if files == nil {
		return nil, fail("LoadFS", fmt.Errorf("%w: the file system is nil", safe.ErrInvalidArgument))
	}
	source, err := await(ctx, func(*atomic.Int32) (string, error) { return readFS(files, name) })
	if err != nil {
		return nil, fail("LoadFS", err)
	}
	o.Headers = append(slices.Clone(o.Headers), files)
	return load(ctx, "LoadFS", x, text{name, source, files}, o)
}

// Image is compiled code.
type Image struct {
	Code   []byte // PTX has no zero byte at its end
	Format Format
	Arch   string            // for which it was compiled: "sm_90", or "compute_90" of PTX
	Names  map[string]string // the symbol of each of Options.Kernels, for safe.LoadOptions

	// Warnings are the compiler's messages that are not errors, including those of an image from the cache.
	Warnings []*Diagnostic
}

// Compile compiles CUDA C++ for the architecture o.Arch. It needs neither a GPU nor a driver. It
// returns the errors of [Load].
func Compile(ctx context.Context, source string, o Options) (*Image, error) {
	const op = "Compile"
	a, err := parseArch(o.Arch, o.Format)
	if err != nil {
		return nil, fail(op, err)
	}
	return image(ctx, op, a, text{o.File, source, nil}, o)
}

// Load loads the image into x. If the driver is too old for the image, the error says what to do.
func (i *Image) Load(x *safe.Context) (*safe.Module, error) {
	return i.load("Image.Load", x, safe.LoadOptions{})
}

func (i *Image) load(op string, x *safe.Context, o safe.LoadOptions) (*safe.Module, error) {
	if i == nil {
		return nil, fail(op, fmt.Errorf("%w: the image is nil", safe.ErrInvalidArgument))
	}
	if i.Format == LTOIR {
		return nil, fail(op, fmt.Errorf("%w: LTO-IR cannot be loaded: link it with Link", safe.ErrInvalidArgument))
	}
	o.Names = i.Names
	m, err := safe.LoadWith(x, i.Code, o)
	if err != nil {
		return nil, &Error{Op: op, Err: err, Hint: tooNew(err, i.Format)}
	}
	return m, nil
}

// tooNew says what to do if the driver is older than the compiler of an image that it refuses.
func tooNew(err error, f Format) string {
	var code driver.CUresult
	var is int32
	if !errors.As(err, &code) || driver.CuDriverGetVersion(&is) != nil {
		return ""
	}
	c, loadErr := loaded()
	if loadErr != nil || versionNumber(c.version) <= int(is) {
		return ""
	}
	version := fmt.Sprintf("%d.%d", is/1000, is%1000/10)
	if f == PTX {
		return fmt.Sprintf("the driver is of CUDA %s and does not load PTX of NVRTC %s: compile machine code, which is Options.Format's default, install a newer driver, or use an older NVRTC", version, c.version)
	}
	if versionNumber(c.version)/1000 > int(is)/1000 {
		return fmt.Sprintf("the driver is of CUDA %s and does not load machine code of NVRTC %s: install a newer driver, or get an older NVRTC with go run github.com/cudabind/cudabind/tools/libs@latest get -version %d nvrtc, and name its folder in nvrtc.Open", version, c.version, is/1000)
	}
	return ""
}

// fail makes op the function that failed. The cause of a context.Context may be an Error of another call, which stays as
// it is.
func fail(op string, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Op == "" {
		e.Op = op
		return e
	}
	return &Error{Op: op, Err: err}
}

func load(ctx context.Context, op string, x *safe.Context, t text, o Options) (*safe.Module, error) {
	if x.Raw() == 0 {
		return nil, fail(op, safe.ErrClosed)
	}
	if o.Format == LTOIR {
		return nil, fail(op, fmt.Errorf("%w: LTO-IR cannot be loaded: set Options.LTO, or use Compile and Link", safe.ErrInvalidArgument))
	}
	a, err := parseArch(o.Arch, o.Format)
	if o.Arch == "" {
		if a, err = archOf(x.Device()); err == nil {
			var all []int
			if all, err = known(); err == nil {
				a, o.Format = forDevice(a, o.Format, all)
			}
		}
	}
	if err != nil {
		return nil, fail(op, err)
	}
	i, err := image(ctx, op, a, t, o)
	if err != nil {
		return nil, err
	}
	jit := safe.LoadOptions{}
	if i.Format == PTX { // the driver's compiler does not see NVRTC's options
		jit = safe.LoadOptions{MaxRegisters: o.MaxRegisters, LineInfo: o.LineInfo, DebugInfo: o.Debug}
	}
	return i.load(op, x, jit)
}

// image compiles a source by itself, and with LTO links it.
func image(ctx context.Context, op string, a arch, t text, o Options) (*Image, error) {
	if ctx == nil {
		return nil, fail(op, errNoContext)
	}
	if o.LTO {
		return link(ctx, op, a, []piece{{t, o.Kernels, nil}}, o)
	}
	p, err := compile(ctx, a, t, o, false)
	if err != nil {
		return nil, fail(op, err)
	}
	return p.image(a, o), nil
}

// image is what a product is to the program.
func (p *product) image(a arch, o Options) *Image {
	return &Image{p.Code, o.Format, a.name(o.Format), p.Names, warnings(parseLog(p.Log))}
}

// text is a source with its name, and the file system that it is from.
type text struct {
	file, source string
	files        fs.FS
}

func (t text) origin() origin {
	o := origin{disk: folderOf(t.file)}
	if t.files != nil {
		o.files, o.dir = 1, path.Dir(t.file)
	}
	return o
}

// compile compiles one source, unless the cache has the result.
func compile(ctx context.Context, a arch, t text, o Options, relocatable bool) (*product, error) {
	err := context.Cause(ctx)
	if err == nil {
		err = o.check()
	}
	if err == nil {
		t.source, err = plain(t.source, "the source")
	}
	if err == nil {
		t.file, err = sourceName(t.file)
	}
	if err != nil {
		return nil, err
	}
	o = o.clone()
	return await(ctx, func(stop *atomic.Int32) (*product, error) {
		c, err := loaded()
		if err != nil {
			return nil, err
		}
		all, err := known()
		if err == nil {
			err = refuseArch(a, o.Format, all, c.version)
		}
		if err != nil {
			return nil, err
		}
		cache, err := openCache(&o)
		if err != nil {
			return nil, err
		}
		defer cache.close()
		j := &job{compiler: c, arch: a, text: t, o: &o, relocatable: relocatable, cache: cache}
		return j.run(ctx, stop)
	})
}

// sourceName is the name of a source for NVRTC, which takes one that begins with a dash for an
// option.
func sourceName(file string) (string, error) {
	switch {
	case file == "":
		return "source.cu", nil
	case strings.ContainsFunc(file, unicode.IsControl):
		return "", fmt.Errorf("%w: the file name %q has a control character", safe.ErrInvalidArgument, file)
	case file[0] == '-':
		return "./" + file, nil
	}
	return file, nil
}

// plain removes the byte order mark of UTF-8, and refuses what NVRTC would not read to its end.
func plain(source, what string) (string, error) {
	if strings.HasPrefix(source, "\xff\xfe") || strings.HasPrefix(source, "\xfe\xff") {
		return "", fmt.Errorf("%w: %s is UTF-16, by its byte order mark: store it as UTF-8", safe.ErrInvalidArgument, what)
	}
	if strings.Contains(source, "\x00") {
		return "", fmt.Errorf("%w: %s has a zero byte", safe.ErrInvalidArgument, what)
	}
	return strings.TrimPrefix(source, utf8Mark), nil
}

const utf8Mark = "\xef\xbb\xbf"
