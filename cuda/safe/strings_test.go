//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The texts of all objects: open, closed, nil and zero. Both drivers.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A text is an object and what it prints, apart from "(closed)".
type text struct {
	object fmt.Stringer
	want   string // a regular expression
	close  func() error
}

// texts has an object of each type, by its name.
func texts(t *testing.T) map[string]text {
	t.Helper()
	x := open(t, 0)
	s, e, b, h := stream(t, x), event(t, x), buffer[float32](t, x, 1024), host[[2]int16](t, x, 9)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	closing(t, m)
	k, err := m.Kernel("saxpy")
	require.NoError(t, err)
	box, err := safe.NewPitched[float32](x, safe.Extent{Width: 3, Height: 4})
	require.NoError(t, err)
	closing(t, box)
	array, err := safe.NewArray[float32](x, safe.Extent{Width: 5, Height: 6}, safe.ArrayOptions{Surface: true})
	require.NoError(t, err)
	closing(t, array)
	texture, err := safe.NewTexture(array, safe.TextureOptions{})
	require.NoError(t, err)
	closing(t, texture)
	surface, err := safe.NewSurface(array)
	require.NoError(t, err)
	closing(t, surface)
	r, _ := resource(t, x)
	p, g, l := pool(t, x, safe.PoolOptions{}), newGraph(t, x), linker(t, x, safe.LoadOptions{})
	addNode(t, g, safe.EmptyNode())
	exec := executable(t, g)
	const handle = " 0x[0-9a-f]+ on device 0"
	return map[string]text{
		"Context":   {x, "Context" + handle, x.Close},
		"Device":    {x.Device(), "device 0", nil},
		"Stream":    {s, "Stream" + handle, s.Close},
		"Event":     {e, "Event" + handle, e.Close},
		"Buffer":    {b, `Buffer\[float32\]: 1024 values on device 0`, b.Close},
		"Pinned":    {h, `Pinned\[\[2\]int16\]: 9 values on the host`, h.Close},
		"Pitched":   {box, `Pitched\[float32\]: 3x4x1 values on device 0`, box.Close},
		"Array":     {array, `Array\[float32\]: 5x6x1 values on device 0`, array.Close},
		"Texture":   {texture, "Texture" + handle, texture.Close},
		"Resource":  {r, "Resource on device 0", r.Close},
		"Surface":   {surface, "Surface" + handle, surface.Close},
		"Pool":      {p, "Pool" + handle, p.Close},
		"Module":    {m, "Module" + handle, m.Close},
		"Kernel":    {k, "Kernel saxpy on device 0", m.Close},
		"Linker":    {l, "Linker" + handle, l.Close},
		"Graph":     {g, "Graph" + handle, g.Close},
		"GraphExec": {exec, "GraphExec" + handle, exec.Close},
		"UUID":      {safe.UUID{}, "GPU-[0-9-]+", nil},
	}
}

// newerTexts has those of objects that some drivers lack.
func newerTexts(t *testing.T) map[string]text {
	t.Helper()
	x := open(t, 0)
	size := virtual(t, x)
	r, p := reserve(t, x, size), physical(t, x, size, safe.PhysicalMemoryOptions{})
	all := map[string]text{
		"AddressRange":   {r, fmt.Sprintf("AddressRange: %d bytes at 0x[0-9a-f]+ for device 0", r.Size()), r.Close},
		"PhysicalMemory": {p, fmt.Sprintf("PhysicalMemory: %d bytes on device 0", p.Size()), p.Close},
	}
	if sm, err := x.Device().SMResource(); err == nil {
		g := green(t, x, sm)
		all["SMResource"] = text{sm, fmt.Sprintf("%d multiprocessors of device 0", sm.Count()), nil}
		all["GreenContext"] = text{g, "GreenContext 0x[0-9a-f]+ on device 0", g.Close}
	} else {
		require.ErrorIs(t, err, safe.ErrNotSupported)
	}
	if managed, err := safe.NewManagedBuffer[byte](x, 3); err == nil {
		all["managed Buffer"] = text{managed, `Buffer\[uint8\]: 3 values in managed memory`, managed.Close}
		closing(t, managed)
	}
	g := newGraph(t, x)
	node := addNode(t, g, safe.EmptyNode())
	all["Node"] = text{node, "CU_GRAPH_NODE_TYPE_EMPTY 0x[0-9a-f]+", nil}
	slice, err := safe.PitchedOf(make([]int, 6), safe.Extent{Width: 2, Height: 3}, 0)
	require.NoError(t, err)
	all["Pitched of a slice"] = text{slice, `Pitched\[int\]: 2x3x1 values in a Go slice`, nil}
	return all
}

// TestStrings also shows that printing calls no driver, and that a struct with an object
// prints the object's text.
func TestStrings(t *testing.T) {
	startClean(t)
	for _, list := range []map[string]text{texts(t), newerTexts(t)} {
		for name, o := range list {
			printed(t, name, o.object, "^"+o.want+"$")
		}
		for _, o := range list {
			if o.close != nil {
				require.NoError(t, o.close())
			}
		}
		for name, o := range list {
			want := "^" + o.want + "$"
			if o.close != nil {
				want = "^" + o.want + ` \(closed\)$`
			}
			printed(t, name+", closed", o.object, want)
		}
	}
}

// printed checks the text of an object, in all ways to print it.
func printed(t *testing.T, name string, o fmt.Stringer, want string) {
	t.Helper()
	calls := 0
	if !onGPU {
		settle(t) // the reaper calls the driver
		calls = simulated.Calls("")
	}
	text := o.String()
	assert.Regexp(t, want, text, name)
	assert.Equal(t, text, fmt.Sprintf("%v", o), name)
	assert.Equal(t, text, fmt.Sprintf("%+v", o), name)
	assert.Equal(t, text+" "+text, fmt.Sprint(o, fmt.Sprintf(" %s", o)), name)
	assert.Equal(t, "{"+text+" [1]}", fmt.Sprint(struct {
		Object any
		Other  []int
	}{o, []int{1}}), name)
	if !onGPU {
		assert.Equal(t, calls, simulated.Calls(""), "%s: printing calls the driver", name)
	}
}

// zeros are nil pointers and zero values of all types.
var zeros = map[string][]fmt.Stringer{
	"Context": {(*safe.Context)(nil), &safe.Context{}}, "Stream": {(*safe.Stream)(nil), &safe.Stream{}},
	"Event": {(*safe.Event)(nil), &safe.Event{}}, "Buffer[int]": {(*safe.Buffer[int])(nil), &safe.Buffer[int]{}},
	"Pinned[int]": {(*safe.Pinned[int])(nil), &safe.Pinned[int]{}}, "Pitched[int]": {(*safe.Pitched[int])(nil), &safe.Pitched[int]{}},
	"Array[int8]": {(*safe.Array[int8])(nil), &safe.Array[int8]{}}, "Texture": {(*safe.Texture)(nil), &safe.Texture{}},
	"Resource": {(*safe.Resource)(nil), &safe.Resource{}},
	"Surface":  {(*safe.Surface)(nil), &safe.Surface{}}, "Pool": {(*safe.Pool)(nil), &safe.Pool{}},
	"AddressRange": {(*safe.AddressRange)(nil), &safe.AddressRange{}}, "PhysicalMemory": {(*safe.PhysicalMemory)(nil), &safe.PhysicalMemory{}},
	"Module": {(*safe.Module)(nil), &safe.Module{}}, "Kernel": {(*safe.Kernel)(nil), &safe.Kernel{}},
	"Linker": {(*safe.Linker)(nil), &safe.Linker{}}, "Graph": {(*safe.Graph)(nil), &safe.Graph{}},
	"GraphExec": {(*safe.GraphExec)(nil), &safe.GraphExec{}}, "GreenContext": {(*safe.GreenContext)(nil), &safe.GreenContext{}},
	"Future[int]": {(*safe.Future[int])(nil), &safe.Future[int]{}}, "Scope": {(*safe.Scope)(nil), &safe.Scope{}}, "Batch": {(*safe.Batch)(nil), &safe.Batch{}}, "Arena": {(*safe.Arena)(nil), &safe.Arena{}},
	"Capture": {(*safe.Capture)(nil), &safe.Capture{}}, "Node": {safe.Node{}},
	"ExternalMemory":    {(*safe.ExternalMemory)(nil), &safe.ExternalMemory{}},
	"ExternalSemaphore": {(*safe.ExternalSemaphore)(nil), &safe.ExternalSemaphore{}},
}

func TestStringsOfNothing(t *testing.T) {
	for name, objects := range zeros {
		for _, o := range objects {
			assert.Equal(t, name+" (never opened)", o.String())
			assert.NotContains(t, fmt.Sprintf("%v %s", o, o), "PANIC")
		}
	}
	assert.Equal(t, "0 multiprocessors of device 0", safe.SMResource{}.String())
}

func TestStringsOfStreams(t *testing.T) {
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	g.shut(t, s)
	f := s.Completion()
	assert.Equal(t, "Future[struct {}]: pending", f.String())
	g.open()
	_, err := f.Wait(context.Background())
	require.NoError(t, err)
	assert.Equal(t, "Future[struct {}]: done", f.String())
	failed := safe.Enqueue(s, func(*safe.Stream) (int, error) { return 0, errors.New("no luck") })
	_, err = failed.Wait(context.Background())
	require.Error(t, err)
	assert.Equal(t, "Future[int]: failed: "+failed.Err().Error(), failed.String())

	var kept *safe.Scope
	require.NoError(t, s.Scope(func(c *safe.Scope) error {
		kept = c
		assert.Equal(t, "Scope of "+s.String(), c.String())
		return nil
	}))
	assert.Equal(t, "Scope of "+s.String()+" (closed)", kept.String())

	c, err := s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	assert.Equal(t, "Capture of "+s.String(), c.String())
	graph, err := c.End()
	require.NoError(t, err)
	closing(t, graph)
	assert.Equal(t, "Capture of "+s.String()+" (closed)", c.String())

	unified := safe.PoolOptions{Location: safe.HostLocation}
	if onHost, err := safe.NewPoolWith(x, unified); err == nil {
		closing(t, onHost)
		b := bufferFrom[int16](t, onHost, s, 2)
		assert.Equal(t, "Buffer[int16]: 2 values on the host", b.String())
	}
}

// TestStringsOfAllTypes: every exported type without exported fields is in one of the tests, apart
// from small values that programs make for a call.
func TestStringsOfAllTypes(t *testing.T) {
	tested := map[string]bool{"Device": true, "SMResource": true, "PhysicalMemory": true}
	for _, value := range []string{"Address", "Arg", "Condition", "CopyOp", "Element", "MemOp", "NodeParams", "PrefetchOp"} {
		tested[value] = true
	}
	for name := range zeros {
		kind, _, _ := strings.Cut(name, "[")
		tested[kind] = true
	}
	for _, spec := range drivertest.ExportedTypes(t, ".") {
		if of, ok := spec.Type.(*ast.StructType); ok && opaque(of) {
			assert.True(t, tested[spec.Name.Name], "%s has no text", spec.Name)
		}
	}
}

func opaque(s *ast.StructType) bool {
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			if name.IsExported() {
				return false
			}
		}
	}
	return true
}
