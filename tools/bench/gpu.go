package main

import (
	_ "embed"
	"errors"
	"math"
	"os"
	"regexp"
	"runtime"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
	"github.com/cudabind/cudabind/internal/process"
)

//go:embed kernels.ptx
var kernels []byte

// largest is the size of the largest copy.
const largest = 64 << 20

// gpu is a device and what the rows use of it.
type gpu struct {
	library, cuda string
	name          string
	ctx           *safe.Context
	stream        *safe.Stream
	event         *safe.Event
	memory        *safe.Buffer[byte]
	pinned        *safe.Pinned[byte]
	arena         *safe.Arena
	module        *safe.Module

	nothing, three, sixteen, spin, wait *safe.Kernel

	threads int   // of the process, when all this was there
	missing error // functions that the driver lacks
}

func openGPU(ordinal int) (*gpu, error) {
	g := &gpu{}
	if err := g.open(ordinal); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *gpu) open(ordinal int) (err error) {
	if g.library, g.cuda, err = driver.Library(); err != nil {
		return err
	}
	if g.ctx, err = safe.Open(ordinal); err != nil {
		return err
	}
	if g.name, err = g.ctx.Device().Name(); err != nil {
		return err
	}
	if g.stream, err = safe.NewStreamWith(g.ctx, safe.StreamOptions{NonBlocking: true}); err != nil {
		return err
	}
	if g.event, err = safe.NewEventWith(g.ctx, safe.EventOptions{DisableTiming: true}); err != nil {
		return err
	}
	if g.memory, err = safe.NewBuffer[byte](g.ctx, largest); err != nil {
		return err
	}
	if g.pinned, err = safe.NewPinned[byte](g.ctx, largest); err != nil {
		return err
	}
	if err := g.load(); err != nil {
		return err
	}
	if err := g.keepPool(); err != nil {
		return err
	}
	g.threads, err = process.Threads(os.Getpid())
	return err
}

func (g *gpu) load() (err error) {
	if g.module, err = safe.Load(g.ctx, kernels); err != nil {
		return err
	}
	for name, kernel := range map[string]**safe.Kernel{
		"nothing": &g.nothing, "three": &g.three, "sixteen": &g.sixteen, "spin": &g.spin, "wait": &g.wait,
	} {
		if *kernel, err = g.module.Kernel(name); err != nil {
			return err
		}
	}
	return nil
}

// keepPool has the device's pool keep memory that is freed. By default it is
// given back to the system at each synchronization, and the next allocation
// costs a thousand times more than usual. Where there is no such pool, the rows
// that need one will say so.
func (g *gpu) keepPool() error {
	var pool driver.CUmemoryPool
	err := driver.CuDeviceGetDefaultMemPool(&pool, g.ctx.Device().Raw())
	if err == nil {
		all := uint64(math.MaxUint64)
		err = driver.CuMemPoolSetAttribute(pool, driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, unsafe.Pointer(&all))
	}
	if unsupported(err) {
		return nil
	}
	return err
}

func (g *gpu) close() error {
	return errors.Join(g.arena.Close(), g.module.Close(), g.pinned.Close(), g.memory.Close(), g.event.Close(), g.stream.Close(), g.ctx.Close())
}

// idle waits for the device, also for what it does after a launch: until
// cuCtxSynchronize every query that finds something done costs some 1200 ns more.
func (g *gpu) idle() error { return g.ctx.Synchronize() }

// launched leaves the device done with a launch, but not idle.
func (g *gpu) launched() error {
	return errors.Join(g.idle(), g.nothing.Launch(g.stream, one), g.stream.SynchronizeBlocking())
}

// fn is the address of a function of the driver.
func (g *gpu) fn(symbol string) uintptr {
	if err := driver.Find(symbol); err != nil {
		g.missing = errors.Join(g.missing, err)
		return 0
	}
	return cloop.Symbol(g.library, symbol)
}

// loop is a loop of C as an op.
func loop(l cloop.Loop, args ...uintptr) op {
	return func(n int) error {
		if code := l.Run(n, args...); code != 0 {
			return driver.CUresult(code)
		}
		return nil
	}
}

// header describes the machine and its software.
func (g *gpu) header() header {
	return header{
		GPU: g.name, Driver: kernelModule(), CUDA: g.cuda, Library: g.library,
		CPUs: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().Format(time.DateTime),
	}
}

// kernelModule is the version of NVIDIA's kernel module, "" where there is none.
func kernelModule() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	return regexp.MustCompile(`\d+\.\d+(\.\d+)?`).FindString(string(text))
}
