//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"errors"
	"flag"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests run on the simulated driver with a double of cuFFT, whose transforms are direct, or
// with CUDABIND_REQUIRE_GPU=1 on the machine's GPU. There, -update writes the picture of docs.
var (
	onGPU  = os.Getenv("CUDABIND_REQUIRE_GPU") != ""
	update = flag.String("update", "", "write the picture of docs to this `file`")
)

const withoutDoubles = "MICROMAGNETICS_TEST_WITHOUT_DOUBLES" // in a process of its own

func TestMain(m *testing.M) {
	if os.Getenv(withoutDoubles) != "" {
		os.Exit(m.Run())
	}
	os.Exit(sim.Main(m, doubles, double.Library{Name: "cufft", Open: cufft.Open}))
}

// film is a solver and the same on the host.
type film struct {
	gpu  *solver
	host *host
	m    []vec // of the host
}

// newFilm makes a film with a random magnetization.
func newFilm(t *testing.T, width, height int, cell size, damping, dt float32) *film {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, errors.Join(x.CloseAll(), x.Close())) })
	s, err := newSolver(t.Context(), x, width, height, cell, damping, dt)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.close()) })
	f := &film{gpu: s, host: newHost(s.film)}
	f.host.tensor = demagnetization(width, height, cell)
	r := rand.New(rand.NewPCG(1, 2))
	for range width * height {
		f.m = append(f.m, vec{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}.unit())
	}
	f.set(t)
	return f
}

// set gives the solver the magnetization of the host, both rounded to float32.
func (f *film) set(t *testing.T) {
	t.Helper()
	m := make([]float32, 3*len(f.m))
	f.host.store(m, 1, f.m)
	f.m = f.host.vectors(m, 1)
	require.NoError(t, f.gpu.magnetize(m))
}

func (f *film) download(t *testing.T, b *safe.Buffer[float32], times int) []vec {
	t.Helper()
	planes, err := b.Download()
	require.NoError(t, err)
	return f.host.vectors(planes, times)
}

// near asserts that vectors are equal but for rounding.
func near(t *testing.T, want, got []vec, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	worst := 0.0
	for i := range want {
		d := got[i].plus(-1, want[i])
		worst = max(worst, math.Sqrt(d.dot(d)))
		if !(d.dot(d) < tolerance*tolerance) {
			t.Fatalf("vector %d is %v, not %v", i, got[i], want[i])
		}
	}
	t.Logf("the largest difference is %.1e", worst)
}

// TestAgainstHost compares the demagnetizing field, the energy and steps with the host's.
func TestAgainstHost(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		onlyGPU       bool
	}{
		{"square", 6, 6, false},
		{"wide", 7, 3, false},
		{"high", 2, 5, false},
		{"a row", 5, 1, false},
		{"a cell", 1, 1, false},
		{"a prime", 41, 37, true},
		{"large", 64, 64, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.onlyGPU && !onGPU {
				t.Skip("the doubles are slow")
			}
			f := newFilm(t, c.width, c.height, size{5e-9, 5e-9, 12e-9}, 0.3, 0.05)
			assert.InDelta(t, 5.69*5.69/(5*5), f.gpu.film.Exchange, 0.002, "the exchange length of permalloy is 5.69 nm")
			require.NoError(t, f.gpu.demagnetize(f.gpu.now[0]))
			near(t, f.host.demagnetizing(f.m), f.download(t, f.gpu.field, 2), 1e-5)

			energy, err := f.gpu.energy(1 / (vacuum * saturation * saturation))
			require.NoError(t, err)
			assert.InDelta(t, f.host.energy(f.m, f.host.demagnetizing(f.m)), energy, 1e-5*float64(len(f.m)))

			for range 5 {
				f.m = f.host.step(f.m, 0.05)
			}
			require.NoError(t, f.gpu.run(5))
			near(t, f.m, f.download(t, f.gpu.m, 1), 2e-5)
		})
	}
}

// TestPrecession: a single flat cell without damping turns around its axis at a known rate.
func TestPrecession(t *testing.T) {
	const dt, steps = 0.1, 100
	cell := size{20e-9, 20e-9, 5e-9}
	f := newFilm(t, 1, 1, cell, 0, dt)
	f.m = []vec{{0.6, 0, 0.8}}
	f.set(t)
	require.NoError(t, f.gpu.run(steps))
	n := between(0, 0, cell)
	angle := (n[0] - n[2]) * 0.8 * dt * steps // in the field -n m
	near(t, []vec{{0.6 * math.Cos(angle), 0.6 * math.Sin(angle), 0.8}}, f.download(t, f.gpu.m, 1), 1e-4)
}

// TestRelaxes: the energy falls, and vectors keep their length.
func TestRelaxes(t *testing.T) {
	f := newFilm(t, 8, 8, size{4e-9, 4e-9, 20e-9}, damping, dt)
	before := math.Inf(1)
	for range 10 {
		energy, err := f.gpu.energy(1)
		require.NoError(t, err)
		assert.Less(t, energy, before)
		before = energy
		require.NoError(t, f.gpu.run(5))
	}
	for _, v := range f.download(t, f.gpu.m, 1) {
		assert.InDelta(t, 1, v.dot(v), 1e-6)
	}
}

// TestVortex: a square of permalloy ends as a vortex. -update keeps the picture.
func TestVortex(t *testing.T) {
	file, edge, steps := filepath.Join(t.TempDir(), "vortex.png"), 4, 2
	if onGPU {
		edge, steps = 256, 8000
		if *update != "" {
			file = *update
		}
	}
	var said strings.Builder
	require.NoError(t, run(t.Context(), options{edge: edge, steps: steps, file: file}, &said))
	assert.Equal(t, min(steps, 10)+1, strings.Count(said.String(), " J\n"), said.String())
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	p, err := png.Decode(f)
	require.NoError(t, err)
	require.Equal(t, scale*edge, p.Bounds().Dx())
	if !onGPU {
		return
	}
	bright := func(x, y int) uint32 {
		r, g, b, _ := p.At(x*scale, y*scale).RGBA()
		return min(r, g, b) >> 8
	}
	assert.Greater(t, max(bright(127, 127), bright(128, 128)), uint32(200), "the core points out of the plane")
	for _, at := range [][2]int{{64, 128}, {192, 128}, {128, 64}, {128, 192}} {
		assert.Less(t, bright(at[0], at[1]), uint32(100), "the domains do not")
	}
}

func TestBench(t *testing.T) {
	if !onGPU {
		t.Skip("the doubles are slow")
	}
	var said strings.Builder
	require.NoError(t, run(t.Context(), options{edge: 1, bench: true}, &said))
	assert.Regexp(t, `^256 x 256: .* ms per step, .* J\n512 x 512: .*\n1024 x 1024: .*\n$`, said.String())
	t.Log(said.String())
}

func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "vortex.png")
	for _, c := range []struct {
		name string
		o    options
		says string
	}{
		{"no cells", options{file: file}, "-edge must be from 1 to 4096, -steps at least 0"},
		{"too many cells", options{edge: 4097, file: file}, "-edge must be from 1 to 4096"},
		{"steps back", options{edge: 1, steps: -1, file: file}, "-steps at least 0"},
		{"no folder", options{edge: 1, file: file}, "no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.ErrorContains(t, run(t.Context(), c.o, new(strings.Builder)), c.says)
		})
	}
}

// TestSource compiles the kernels by NVIDIA's compiler.
func TestSource(t *testing.T) {
	if !onGPU && os.Getenv(withoutDoubles) == "" { // NVRTC is a double in this process
		cmd := command.Built(os.Args[0], "-test.run=^TestSource$", "-test.v")
		cmd.Env = append(os.Environ(), withoutDoubles+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if strings.Contains(string(out), "--- SKIP") {
			t.Skip(string(out))
		}
		return
	}
	if _, _, err := nvrtc.Library(); err != nil {
		if err := nvrtc.Open("../../.cache/libnvrtc/13.5"); err != nil { // where make libraries puts it
			t.Skip(err)
		}
	}
	source, err := kernelsFiles.ReadFile("kernels.cu")
	require.NoError(t, err)
	for _, arch := range []string{"sm_75", "sm_90"} {
		image, err := compile.Compile(t.Context(), string(source), compile.Options{Arch: arch, CacheFolder: t.TempDir()})
		require.NoError(t, err, arch)
		assert.Equal(t, "\x7fELF", string(image.Code[:4]), arch)
	}
}
