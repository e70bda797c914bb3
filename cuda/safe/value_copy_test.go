//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Objects that the program has copied by value: a copy is the same object. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"go/ast"
	gotypes "go/types"
	"regexp"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestScopeCopied: a copy that outlives its scope pins nothing. Go ends a program that drops a pin.
func TestScopeCopied(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[byte](t, x, 1<<16)
	require.NoError(t, b.Fill(0))
	var kept safe.Scope
	require.NoError(t, s.Scope(func(c *safe.Scope) error {
		kept = *c
		return errors.Join(safe.CopyToSlice(c, make([]byte, 1<<16), b), safe.CopyToSlice(&kept, make([]byte, 1<<16), b))
	}))
	for range 3 {
		assert.ErrorIs(t, safe.CopyToSlice(&kept, make([]byte, 1<<16), b), safe.ErrClosed)
		assert.ErrorIs(t, safe.CopyFromSlice(&kept, b, make([]byte, 1<<16)), safe.ErrClosed)
	}
	assert.Contains(t, kept.String(), "(closed)")
	drop()
}

// TestScopeOfOthers: a goroutine that goes on after its scope pins nothing either.
func TestScopeOfOthers(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[byte](t, x, 4096)
	over := make(chan error)
	require.NoError(t, s.Scope(func(c *safe.Scope) error {
		begun := make(chan struct{})
		go func() {
			err := safe.CopyFromSlice(c, b, make([]byte, 4096))
			close(begun)
			for err == nil {
				err = safe.CopyFromSlice(c, b, make([]byte, 4096))
			}
			over <- err
		}()
		<-begun
		return nil
	}))
	assert.ErrorIs(t, <-over, safe.ErrClosed)
	drop()
}

func TestArenaCopied(t *testing.T) {
	x := open(t, 0)
	a, err := safe.NewArena(stream(t, x), 4096)
	require.NoError(t, err)
	closing(t, a)
	first, err := safe.NewBufferIn[byte](a, 100)
	if errors.Is(err, safe.ErrNotSupported) { // drivers without memory pools
		t.Skip(err)
	}
	require.NoError(t, err)
	copied := *a
	second, err := safe.NewBufferIn[byte](a, 100)
	require.NoError(t, err)
	third, err := safe.NewBufferIn[byte](&copied, 100)
	require.NoError(t, err)
	assert.NotEqual(t, second.Raw(), third.Raw(), "two buffers have the same memory")
	require.NoError(t, copied.Reset())
	assert.ErrorIs(t, first.Fill(0), safe.ErrClosed)
	require.NoError(t, copied.Close())
	_, err = safe.NewBufferIn[byte](a, 1)
	assert.ErrorIs(t, err, safe.ErrClosed)
}

func TestBatchCopied(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), newBatch(t, x)
	values := buffer[int32](t, x, 4)
	ran := make(chan struct{}, 10)
	require.NoError(t, b.LaunchHostFunc(func() { ran <- struct{}{} }))
	copied := *b
	require.NoError(t, safe.BatchFill(b, values, 1))
	require.NoError(t, safe.BatchFill(&copied, values, 2))
	assert.Equal(t, 3, b.Len())
	assert.Equal(t, 3, copied.Len())
	require.NoError(t, errors.Join(b.Submit(s), copied.Submit(s), s.Synchronize()))
	assert.Len(t, ran, 2)
	copied.Reset()
	b.Reset()
	assert.Zero(t, b.Len())
}

// TestFutureCopied: a copy of a pending future gets its result.
func TestFutureCopied(t *testing.T) {
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	g.shut(t, s)
	f := safe.Enqueue(s, func(*safe.Stream) (int, error) { return 7, nil })
	copied := *f
	require.NoError(t, copied.Err())
	g.open()
	v, err := copied.Wait(context.Background())
	require.NoError(t, err)
	assert.Equal(t, 7, v)
}

// TestModuleReplaced: a kernel stays one of the module that it was made from, whatever the program writes there.
func TestModuleReplaced(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	load := func() *safe.Module {
		m, err := safe.LoadFile(x, "testdata/kernels.ptx")
		require.NoError(t, err)
		closing(t, m)
		return m
	}
	m, other := load(), load()
	k, err := m.Kernel("nothing")
	require.NoError(t, err)
	require.NoError(t, errors.Join(k.Launch(s, one), s.Synchronize(), m.Close()))
	drivertest.Replace(m, other)
	assert.ErrorIs(t, k.Launch(s, one), safe.ErrClosed)
	b := newBatch(t, x)
	assert.ErrorIs(t, b.Launch(k, one), safe.ErrClosed)
	g := newGraph(t, x)
	_, err = g.Add(safe.KernelNode(k, one))
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = k.Attribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS)
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.Zero(t, k.Raw())
	noViolation(t)
}

// TestStreamReplacedInScope: a scope stays on its stream, whatever the program writes there: it waits for that alone
// before Go memory may move.
func TestStreamReplacedInScope(t *testing.T) {
	x := open(t, 0)
	s, other, b := stream(t, x), stream(t, x), buffer[byte](t, x, 1<<16)
	before := safe.Pending(other)
	require.NoError(t, s.Scope(func(c *safe.Scope) error {
		defer drivertest.Replace(s, other)()
		return safe.CopyFromSlice(c, b, make([]byte, 1<<16))
	}))
	assert.Equal(t, before, safe.Pending(other), "the copy is on another stream than the scope waits for")
}

// TestStreamReplacedOfArena: an arena stays on its stream.
func TestStreamReplacedOfArena(t *testing.T) {
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	a, err := safe.NewArena(s, 4096)
	require.NoError(t, err)
	closing(t, a)
	text := a.String()
	defer drivertest.Replace(s, other)()
	before := safe.Pending(other)
	_, err = safe.NewBufferIn[byte](a, 100)
	if errors.Is(err, safe.ErrNotSupported) { // drivers without memory pools
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.Equal(t, before, safe.Pending(other))
	assert.Equal(t, text, a.String())
}

// TestBranchReplaced: Fork closes its own streams, whatever the program writes there.
func TestBranchReplaced(t *testing.T) {
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	var branch safe.Stream
	require.NoError(t, s.Fork(1, func(branches []*safe.Stream) error {
		drivertest.Replace(&branch, branches[0])
		drivertest.Replace(branches[0], other)
		return nil
	}))
	assert.NoError(t, other.Synchronize())
	assert.ErrorIs(t, branch.Synchronize(), safe.ErrClosed)
}

// TestReplacedInRawCall: what the program writes into its objects and lists during EnqueueRaw changes no handles of others.
func TestReplacedInRawCall(t *testing.T) {
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	b, another := buffer[byte](t, x, 100), buffer[byte](t, x, 100)
	uses := []safe.Arg{b.Arg()}
	var undo func()
	require.NoError(t, s.EnqueueRaw(func(driver.CUstream) error {
		undo, uses[0] = drivertest.Replace(s, other), another.Arg()
		return nil
	}, uses...))
	undo()
	for _, v := range []*safe.Stream{s, other} {
		checked := make(chan struct{})
		require.NoError(t, v.EnqueueRaw(func(raw driver.CUstream) error {
			go func() {
				defer close(checked)
				assert.NoError(t, v.Close())
			}()
			<-checked
			assert.Equal(t, raw, v.Raw(), "0 is the legacy default stream")
			return nil
		}))
		assert.Zero(t, v.Raw())
	}
	s = stream(t, x)
	for _, v := range []*safe.Buffer[byte]{b, another} {
		want := v.Raw()
		require.NoError(t, s.EnqueueRaw(func(driver.CUstream) error {
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				assert.NoError(t, v.Close())
			}()
			select {
			case <-closed:
			case <-time.After(50 * time.Millisecond): // Close waits for the stream
			}
			assert.Equal(t, want, v.Raw())
			return nil
		}, v.Arg()))
	}
	require.Eventually(t, func() bool { return b.Raw() == 0 && another.Raw() == 0 }, atOnce, time.Millisecond)
}

// TestContextReplaced: what the program writes into the context of an object changes that of no other.
func TestContextReplaced(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[byte](t, x, 100)
	drivertest.Replace(s.Context(), &safe.Context{})
	assert.True(t, x.Equal(b.Context()))
	assert.True(t, x.Equal(s.Context()))
	_, err := s.Time(context.Background(), func() error { return b.FillAsync(s, 0) })
	assert.NoError(t, err)
}

// stateful are types whose copies would differ from the original, or be used beside it.
var stateful = regexp.MustCompile(`^(sync\.|atomic\.|runtime\.|map|chan|func)`)

// TestCopiesShareState: what changes in an exported object is behind a pointer, so that a copy is the same
// object. lifetime.Cleanup is made for copies.
func TestCopiesShareState(t *testing.T) {
	for _, spec := range drivertest.ExportedTypes(t, ".") {
		of, ok := spec.Type.(*ast.StructType)
		if !ok || !opaque(of) {
			continue
		}
		for _, f := range of.Fields.List {
			if len(f.Names) == 1 && spec.Name.Name+"."+f.Names[0].Name == "Kernel.prepared" {
				continue // a copy prepares the kernel again
			}
			assert.NotRegexp(t, stateful, gotypes.ExprString(f.Type), spec.Name.Name)
		}
	}
}
