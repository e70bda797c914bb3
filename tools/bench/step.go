package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/cudabind/cudabind/internal/cloop"
)

// steps are those of a simulation on a square grid, such as of mumax3: 2 fills, 12 kernels with 5 to 14 arguments, 3
// transforms, and a number that comes back, for which the host waits. C, package driver and package safe do the same,
// in turns; package safe also with batches, recorded once, in place of its calls before, between and after the transforms,
// and as a graph, captured once. Without cuFFT the transforms are left out.
var steps = group{
	name:    "step",
	columns: []string{"µs", "p10", "p90", "/C"},
	plot:    []string{"/C"},
	run:     simulate,
}

const (
	stepArrays    = 7
	stepFactors   = 5
	stepArguments = stepArrays + stepFactors + 2 // at most
)

// stepKernels are the kernels of a step, by the number of their arguments: arrays, factors, and twice the edge.
var stepKernels = [...]struct{ arrays, factors int }{{3, 0}, {3, 1}, {4, 1}, {4, 2}, {6, 3}, {6, 4}, {7, 5}}

// The kernels of a step in order: one before each transform, and others after the last.
const (
	stepTransforms  = 3
	beforeTransform = 4
)

var afterTransforms = [...]int{2, 0, 3, 3, 3, 6, 5, 1, 0}

// simulation is what a step needs.
type simulation struct {
	g        *gpu
	edge     int
	stream   *safe.Stream
	module   *safe.Module
	kernels  [len(stepKernels)]*safe.Kernel
	arrays   [stepArrays]*safe.Buffer[float32]
	spectrum *safe.Buffer[complex64]
	host     *safe.Pinned[float32]
	plan     *fft.Plan[float32, complex64] // nil without cuFFT
	raws     rawPlan                       // of C and package driver

	before, between, after *safe.Batch // the transforms
	graph                  *safe.GraphExec
}

func simulate(g *gpu, e effort) ([]*line, error) {
	legacy, err := safe.LegacyStream(g.ctx)
	if err != nil {
		return nil, err
	}
	defer legacy.Close()
	edges := []int{32, 64, 128, 256, 512}
	if e.short {
		edges = edges[:1]
	}
	var lines []*line
	for _, on := range []struct {
		name   string
		stream *safe.Stream
		most   float64 // of C's time
	}{{"a stream", g.stream, 1.05}, {"the legacy stream", legacy, 1.10}} {
		for _, edge := range edges {
			s := &simulation{g: g, edge: edge, stream: on.stream}
			err := s.open()
			if err == nil {
				var ways []*line
				ways, err = s.measure(e, on.name, on.most)
				lines = append(lines, ways...)
			}
			if err := errors.Join(err, s.close()); err != nil {
				return nil, err
			}
		}
	}
	parts, err := launchParts(g, e)
	return append(lines, parts...), err
}

// measure measures the ways in turns.
func (s *simulation) measure(e effort, on string, most float64) ([]*line, error) {
	name := fmt.Sprintf("%dx%d on %s", s.edge, s.edge, on)
	if s.plan == nil {
		name += ", no cuFFT"
	}
	r := row{name: name, prepare: s.g.idle}
	ways := []*way{
		{row: &r, op: loop(cloop.Step, s.arguments()...), in: e.meter.current},
		{row: &r, op: times(s.raw), in: e.meter.current},
		{row: &r, op: times(s.safe), in: alone},
		{row: &r, op: times(s.replay), in: alone},
		{row: &r, op: times(s.launch), in: alone},
	}
	lines := append(threeWays(name), newLine(name, "replay"), newLine(name, "graph"))
	if s.g.missing != nil {
		return nil, s.g.missing
	}
	if err := e.inTurns(ways); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i, w := range ways {
		lines[i].spread(w, ways[0])
	}
	for _, l := range lines[2:] {
		l.atMost("/C", most)
	}
	return lines, nil
}

// spread has the median of the rounds, the times that a tenth of them is below and above, and the ratio to C.
func (l *line) spread(w, c *way) {
	sorted := slices.Sorted(slices.Values(w.means))
	tenth := len(sorted) / 10
	l.Values["µs"], l.Values["p10"], l.Values["p90"] = median(w.means)/1e3, sorted[tenth]/1e3, sorted[len(sorted)-1-tenth]/1e3
	l.Values["/C"] = paired(w, c, ratio)
}

func (s *simulation) open() (err error) {
	if s.module, err = safe.Load(s.g.ctx, stepPTX()); err != nil {
		return err
	}
	for i, k := range stepKernels {
		if s.kernels[i], err = s.module.Kernel(fmt.Sprintf("step%d", k.arrays+k.factors+2)); err != nil {
			return err
		}
	}
	for i := range s.arrays {
		if s.arrays[i], err = safe.NewBuffer[float32](s.g.ctx, s.edge*s.edge); err != nil {
			return err
		}
	}
	if s.spectrum, err = safe.NewBuffer[complex64](s.g.ctx, s.edge*(s.edge/2+1)); err != nil {
		return err
	}
	if s.host, err = safe.NewPinned[float32](s.g.ctx, 1); err != nil {
		return err
	}
	if _, _, err := cufft.Library(); err == nil {
		if err := s.plans(); err != nil {
			return err
		}
	}
	return cmp.Or(s.record(), s.capture())
}

// plans makes the plans of the transforms.
func (s *simulation) plans() (err error) {
	if s.plan, err = fft.New[float32, complex64](s.g.ctx, fft.Shape{N: []int{s.edge, s.edge}}, fft.Options{}); err != nil {
		return err
	}
	edge := int64(s.edge)
	s.raws, err = makePlan(s.stream, []int64{edge, edge}, 1, librarytypes.CUDA_R_32F, librarytypes.CUDA_C_32F)
	return err
}

// capture captures a step on a stream of its own, as the legacy stream cannot capture.
func (s *simulation) capture() (err error) {
	on := s.stream
	defer func() { s.stream = on }()
	if s.stream, err = safe.NewStream(s.g.ctx); err != nil {
		return err
	}
	defer s.stream.Close()
	s.graph, err = s.stream.CaptureExecutable(s.enqueue)
	return err
}

func (s *simulation) close() error {
	for _, b := range []*safe.Batch{s.before, s.between, s.after} {
		b.Reset() // it keeps what it uses
	}
	errs := []error{s.graph.Close(), s.plan.Close(), s.host.Close(), s.spectrum.Close(), s.module.Close(), s.raws.close(s.g.ctx)}
	for _, a := range s.arrays {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// arguments are those of C's loop.
func (s *simulation) arguments() []uintptr {
	exec := uintptr(0)
	if s.plan != nil {
		file, _, _ := cufft.Library() // as open has found it
		exec = cloop.Symbol(file, "cufftXtExec")
	}
	args := []uintptr{
		s.g.fn("cuLaunchKernel"), s.g.fn("cuMemsetD32Async"), s.g.fn("cuMemcpyDtoHAsync_v2"), s.g.fn("cuStreamSynchronize"), exec,
		uintptr(s.stream.Raw()), uintptr(s.raws.handle), uintptr(s.edge), uintptr(s.spectrum.Raw()), uintptr(unsafe.Pointer(&s.host.Data()[0])),
	}
	for _, k := range s.kernels {
		args = append(args, uintptr(k.Raw()))
	}
	for _, a := range s.arrays {
		args = append(args, uintptr(a.Raw()))
	}
	return args
}

// inOrder calls what a step does between its fills and its copy.
func (s *simulation) inOrder(kernel, transform func(int) error) (err error) {
	for i := range stepTransforms {
		err = cmp.Or(err, kernel(beforeTransform))
		if s.plan != nil {
			err = cmp.Or(err, transform(i))
		}
	}
	for _, k := range afterTransforms {
		err = cmp.Or(err, kernel(k))
	}
	return err
}

// raw is a step by package driver.
func (s *simulation) raw() error {
	stream := s.stream.Raw()
	err := errors.Join(driver.CuMemsetD32Async(s.arrays[0].Raw(), 0, uint64(s.edge*s.edge), stream), driver.CuMemsetD32Async(s.arrays[6].Raw(), 0, 1, stream))
	err = cmp.Or(err, s.inOrder(s.elementwiseRaw, func(i int) error {
		return cufft.CufftXtExec(s.raws.handle, ffi.Pointer(s.arrays[i].Raw()), ffi.Pointer(s.spectrum.Raw()), cufft.CUFFT_FORWARD)
	}))
	err = cmp.Or(err, driver.CuMemcpyDtoHAsync(unsafe.Pointer(&s.host.Data()[0]), s.arrays[6].Raw(), 4, stream))
	return cmp.Or(err, driver.CuStreamSynchronize(stream))
}

func (s *simulation) elementwiseRaw(kernel int) error {
	var address [stepArrays]driver.CUdeviceptr
	var factor [stepFactors]float32
	var params [stepArguments]unsafe.Pointer
	edge, n := uint32(s.edge), 0
	add := func(p unsafe.Pointer) { params[n] = p; n++ }
	for i := range stepKernels[kernel].arrays {
		address[i] = s.arrays[i].Raw()
		add(unsafe.Pointer(&address[i]))
	}
	for i := range stepKernels[kernel].factors {
		factor[i] = 0.5
		add(unsafe.Pointer(&factor[i]))
	}
	add(unsafe.Pointer(&edge))
	add(unsafe.Pointer(&edge))
	return driver.CuLaunchKernel(s.kernels[kernel].Raw(), edge/32, edge/8, 1, 32, 8, 1, 0, s.stream.Raw(), &params[0], nil)
}

// safe is a step by packages safe and fft.
func (s *simulation) safe() error { return cmp.Or(s.enqueue(), s.stream.Synchronize()) }

// enqueue enqueues a step.
func (s *simulation) enqueue() error {
	result, err := s.arrays[6].Slice(0, 1)
	err = cmp.Or(err, errors.Join(s.arrays[0].FillAsync(s.stream, 0), result.FillAsync(s.stream, 0)))
	err = cmp.Or(err, s.inOrder(s.elementwise, func(i int) error { return s.plan.Forward(s.stream, s.arrays[i], s.spectrum) }))
	return cmp.Or(err, result.CopyToHostAsync(s.stream, s.host))
}

// launch is a step as a graph.
func (s *simulation) launch() error { return cmp.Or(s.graph.Launch(s.stream), s.stream.Synchronize()) }

func (s *simulation) elementwise(kernel int) error {
	var room [stepArguments]safe.Arg
	return s.kernels[kernel].Launch(s.stream, s.shape(), s.values(kernel, &room)...)
}

func (s *simulation) shape() safe.LaunchConfig {
	return safe.LaunchConfig{Grid: safe.Dim{X: uint32(s.edge) / 32, Y: uint32(s.edge) / 8}, Block: safe.Dim{X: 32, Y: 8}}
}

// values puts the arguments of a kernel into args.
func (s *simulation) values(kernel int, args *[stepArguments]safe.Arg) []safe.Arg {
	n := 0
	add := func(a safe.Arg) { args[n] = a; n++ }
	for i := range stepKernels[kernel].arrays {
		add(s.arrays[i].Arg())
	}
	for range stepKernels[kernel].factors {
		add(safe.Val(float32(0.5)))
	}
	edge := safe.Val(uint32(s.edge))
	add(edge)
	add(edge)
	return args[:n]
}

// replay is a step by packages safe and fft, with batches.
func (s *simulation) replay() error {
	err := s.before.Submit(s.stream)
	for i := range stepTransforms {
		if i > 0 {
			err = cmp.Or(err, s.between.Submit(s.stream))
		}
		if s.plan != nil {
			err = cmp.Or(err, s.plan.Forward(s.stream, s.arrays[i], s.spectrum))
		}
	}
	err = cmp.Or(err, s.after.Submit(s.stream))
	return cmp.Or(err, s.stream.Synchronize())
}

// record records the batches.
func (s *simulation) record() (err error) {
	for _, b := range []**safe.Batch{&s.before, &s.between, &s.after} {
		if *b, err = safe.NewBatch(s.g.ctx); err != nil {
			return err
		}
	}
	result, err := s.arrays[6].Slice(0, 1)
	if err != nil {
		return err
	}
	add := func(b *safe.Batch, kernel int) error {
		var room [stepArguments]safe.Arg
		return b.Launch(s.kernels[kernel], s.shape(), s.values(kernel, &room)...)
	}
	err = errors.Join(safe.BatchFill(s.before, s.arrays[0], 0), safe.BatchFill(s.before, result, 0), add(s.before, beforeTransform), add(s.between, beforeTransform))
	for _, k := range afterTransforms {
		err = errors.Join(err, add(s.after, k))
	}
	return errors.Join(err, safe.BatchCopy(s.after, s.host, result))
}

// stepPTX has the kernels: each adds its other arrays up into the first, times its factors.
func stepPTX() []byte {
	var b strings.Builder
	b.WriteString(".version 7.0\n.target sm_70\n.address_size 64\n")
	for _, k := range stepKernels {
		n := k.arrays + k.factors + 2
		var params []string
		for i := range n {
			kind := "u64"
			switch {
			case i >= n-2:
				kind = "u32"
			case i >= k.arrays:
				kind = "f32"
			}
			params = append(params, fmt.Sprintf(".param .%s p%d", kind, i))
		}
		fmt.Fprintf(&b, `.visible .entry step%d(%s)
{
	.reg .pred out;
	.reg .b32 x, y, w, h, t;
	.reg .b64 at, a;
	.reg .f32 sum, v;

	ld.param.u32 w, [p%d];
	ld.param.u32 h, [p%d];
	mov.u32 x, %%ctaid.x;
	mov.u32 t, %%tid.x;
	mad.lo.u32 x, x, 32, t;
	mov.u32 y, %%ctaid.y;
	mov.u32 t, %%tid.y;
	mad.lo.u32 y, y, 8, t;
	setp.ge.u32 out, x, w;
	@out ret;
	setp.ge.u32 out, y, h;
	@out ret;
	mad.lo.u32 x, y, w, x;
	mul.wide.u32 at, x, 4;
	mov.f32 sum, 0f00000000;
`, n, strings.Join(params, ", "), n-2, n-1)
		for i := 1; i < k.arrays; i++ {
			fmt.Fprintf(&b, "\tld.param.u64 a, [p%d];\n\tcvta.to.global.u64 a, a;\n\tadd.u64 a, a, at;\n\tld.global.f32 v, [a];\n\tadd.f32 sum, sum, v;\n", i)
		}
		for i := range k.factors {
			fmt.Fprintf(&b, "\tld.param.f32 v, [p%d];\n\tmul.f32 sum, sum, v;\n", k.arrays+i)
		}
		b.WriteString("\tld.param.u64 a, [p0];\n\tcvta.to.global.u64 a, a;\n\tadd.u64 a, a, at;\n\tst.global.f32 [a], sum;\n\tret;\n}\n")
	}
	return []byte(b.String())
}

// launchParts are launches in C, of a kernel on the legacy stream and of a graph on a stream, with one or another of what
// package safe does around them: their times tell which of it costs what.
func launchParts(g *gpu, e effort) ([]*line, error) {
	graph, err := safe.NewGraph(g.ctx)
	if err != nil {
		return nil, err
	}
	defer graph.Close()
	if _, err := graph.Add(safe.KernelNode(g.nothing, one)); err != nil {
		return nil, err
	}
	x, err := graph.Instantiate()
	if err != nil {
		return nil, err
	}
	defer x.Close()
	var lines []*line
	for _, what := range []struct {
		name, function   string
		launched, stream uintptr
		bits             int
	}{
		{"launch on the legacy stream in C", "cuLaunchKernel", uintptr(g.nothing.Raw()), uintptr(driver.CU_STREAM_LEGACY), 0},
		{"graph launch in C", "cuGraphLaunch", uintptr(x.Raw()), uintptr(g.stream.Raw()), 8},
	} {
		var ways []*way
		r := row{batch: queue, prepare: g.idle}
		first := len(lines)
		for bits, name := range []string{"alone", "context", "question", "context, question", "mode", "context, mode", "question, mode", "context, question, mode"} {
			in := e.meter.current
			if bits&1 != 0 {
				in = alone
			}
			ways = append(ways, &way{row: &r, in: in, op: loop(cloop.LaunchParts, g.fn(what.function), g.fn("cuCtxGetCurrent"), g.fn("cuCtxSetCurrent"),
				g.fn("cuThreadExchangeStreamCaptureMode"), g.fn("cuStreamIsCapturing"), what.launched, what.stream, uintptr(bits|what.bits), uintptr(g.ctx.Raw()))})
			lines = append(lines, newLine(what.name, name))
		}
		if g.missing != nil {
			return nil, g.missing
		}
		if err := e.inTurns(ways); err != nil {
			return nil, err
		}
		for i, w := range ways {
			lines[first+i].spread(w, ways[0])
		}
	}
	return lines, nil
}
