package compile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
)

// job is the compilation of one source.
type job struct {
	*compiler
	arch        arch
	text        text
	o           *Options
	relocatable bool
	cache       *cache
}

// prepared is a job whose headers are found.
type prepared struct {
	unit       *unit
	includes   *includes
	key, state string
	store      bool // the image follows from the key alone
}

// run returns the cache's image, or compiles and stores one. It compiles a second time if headers
// had to be mended.
func (j *job) run(ctx context.Context, stop *atomic.Int32) (*product, error) {
	own := &cudaHeaders{compiler: j.compiler}
	defer own.close()
	if j.cache != nil {
		own.folder = j.o.cacheFolder()
	}
	before, err := j.prepare(ctx, own)
	if err != nil {
		return nil, err
	}
	if before.store {
		if p := j.cache.get(before.key); p != nil {
			return p, nil
		}
	}
	p, err := before.unit.compile(stop)
	if err != nil && stop.Load() == 0 && own.mend() {
		if before, err = j.prepare(ctx, own); err != nil {
			return nil, err
		}
		p, err = before.unit.compile(stop)
	}
	var e *Error
	if errors.As(err, &e) {
		e.Hint = before.includes.hint(e.Log)
	}
	if err != nil {
		return nil, err
	}
	if len(p.Code) == 0 {
		return nil, fmt.Errorf("%w: NVRTC %s made no %v", errors.ErrUnsupported, j.version, j.o.Format)
	}
	if before.store {
		// A header that was changed meanwhile may or may not be in the image.
		if now, err := j.prepare(ctx, own); err == nil && now.store && now.key == before.key && now.state == before.state {
			j.cache.put(now.key, p)
		}
	}
	return p, nil
}

// prepare finds the headers of the source, and from these the key of its image.
func (j *job) prepare(ctx context.Context, own *cudaHeaders) (*prepared, error) {
	i, err := findIncludes(ctx, j.o, j.text, own)
	if err != nil {
		return nil, err
	}
	u := &unit{file: j.text.file, source: j.text.source, headers: i.headers(), kernels: j.o.Kernels, format: j.o.Format}
	u.flags = j.o.flags(j.arch, j.relocatable, i.folders)
	if newer(j.version, "12.8") && !slices.Contains(u.flags, "-no-cache") {
		// Its own cache loads the driver's library, also from the current folder.
		u.flags = append(u.flags, "-no-cache")
	}
	k := key{sha256.New()}
	k.add("NVRTC", j.version, j.identity, strconv.Itoa(int(u.format)), u.file, u.source)
	k.add(strconv.Itoa(len(u.flags)))
	k.add(u.flags...)
	k.add(strconv.Itoa(len(u.kernels)))
	k.add(u.kernels...)
	err = i.addTo(k)
	if j.o.Debug || j.o.LineInfo { // NVRTC writes whole paths
		wd, wdErr := os.Getwd()
		err = errors.Join(err, wdErr)
		k.add("in", wd, os.Getenv("PWD"))
	}
	return &prepared{u, i, k.sum(), i.state(), err == nil && j.cache != nil && own.temporary == "" && !i.unsure && j.o.cacheable()}, nil
}

// compiler is the NVRTC that is loaded.
type compiler struct {
	file, version string
	identity      string // changes with the library, also within a version
}

// compilers hold the identity of the library from the time it was loaded: the file may be another
// later.
var compilers sync.Map

// loaded returns the NVRTC that is loaded, and loads it if need be.
func loaded() (*compiler, error) {
	file, version, err := nvrtc.Library()
	if err != nil {
		return nil, err
	}
	return identified(file, version), nil
}

// identified returns a library with its identity: those of its file and of the library of built-in
// functions beside it, which belongs to it.
func identified(file, version string) *compiler {
	if c, ok := compilers.Load(file); ok {
		return c.(*compiler)
	}
	k := key{sha256.New()}
	builtins, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*nvrtc*builtins*"))
	for _, file := range append([]string{file}, builtins...) {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		head, err := io.ReadAll(io.LimitReader(f, 1<<16)) // with the linker's build ID
		if info, statErr := f.Stat(); err == nil && statErr == nil {
			k.add(filepath.Base(file), string(head), strconv.FormatInt(info.Size(), 10), info.ModTime().String())
		}
		f.Close()
	}
	c, _ := compilers.LoadOrStore(file, &compiler{file, version, k.sum()})
	return c.(*compiler)
}
