//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests share pools between processes. TestSharedPool needs a GPU,
// TestSimSharedPool the simulated driver.

package safe_test

import (
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sharedVariable tells a test that it runs in the other process, and which memory to use.
const sharedVariable = "CUDABIND_TEST_SHARED"

// fromOther returns what another process has sent. In the first process there is nothing.
func fromOther(t *testing.T, to []byte) bool {
	t.Helper()
	text := os.Getenv(sharedVariable)
	if text == "" {
		return false
	}
	raw, err := hex.DecodeString(text)
	require.NoError(t, err)
	require.Equal(t, len(to), copy(to, raw))
	return true
}

// toOther runs the test in another process and waits for it.
func toOther(t *testing.T, what []byte, files ...*os.File) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	other := command.Built(self, "-test.run=^"+t.Name()+"$", "-test.timeout="+hang.String())
	other.Env = append(os.Environ(), sharedVariable+"="+hex.EncodeToString(what))
	other.ExtraFiles = files
	out, err := other.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const sharedValues = 1 << 20 // 4 MiB

// exchange makes the other process double what this one has written.
func exchange(t *testing.T, b *safe.Buffer[float32]) {
	t.Helper()
	got := make([]float32, sharedValues)
	require.NoError(t, b.CopyToHost(got))
	require.Equal(t, count(sharedValues), got, "as written by the process that allocated it")
	for i := range got {
		got[i] *= 2
	}
	require.NoError(t, b.CopyFromHost(got))
}

func exchanged(t *testing.T, b *safe.Buffer[float32]) {
	t.Helper()
	got := make([]float32, sharedValues)
	require.NoError(t, b.CopyToHost(got))
	for i, v := range got {
		require.Equal(t, float32(2*i), v)
	}
}

// TestSharedPool makes another process use memory of a pool of this one.
func TestSharedPool(t *testing.T) {
	needsFiles(t)
	if !onGPU {
		t.Skip("other processes are not simulated")
	}
	x := open(t, 0)
	var data driver.CUmemPoolPtrExportData
	if fromOther(t, data.Reserved[:]) {
		p, err := safe.ImportPool(x, os.NewFile(3, "pool"))
		require.NoError(t, err)
		closing(t, p)
		b, err := safe.ImportBuffer[float32](p, data, sharedValues)
		require.NoError(t, err)
		closing(t, b)
		exchange(t, b)
		_, err = safe.NewBufferFrom[float32](p, stream(t, x), 1)
		assert.ErrorIs(t, err, safe.ErrInvalidArgument)
		_, err = safe.ImportBuffer[float32](p, data, sharedValues)
		assert.ErrorIs(t, err, safe.ErrInvalidArgument, "it is imported already")
		return
	}
	p, s := pool(t, x, shared), stream(t, x)
	b := bufferFrom[float32](t, p, s, sharedValues)
	require.NoError(t, b.CopyFromHost(count(sharedValues)))
	data, err := b.ExportPointer()
	require.NoError(t, err)
	f, err := p.Export()
	require.NoError(t, err)
	toOther(t, data.Reserved[:], f)
	require.NoError(t, f.Close())
	exchanged(t, b)
}

// TestSimSharedPool imports the process's own pool, which the simulated driver allows.
func TestSimSharedPool(t *testing.T) {
	needsFiles(t)
	needsSimulated(t)
	x := open(t, 0)
	y := second(t)
	p, s := pool(t, x, shared), stream(t, x)
	b := bufferFrom[float32](t, p, s, sharedValues)
	require.NoError(t, b.CopyFromHost(count(sharedValues)))
	data, err := b.ExportPointer()
	require.NoError(t, err)
	f, err := p.Export()
	require.NoError(t, err)
	imported, err := safe.ImportPool(y, f)
	require.NoError(t, err)
	closing(t, imported)
	require.NoError(t, f.Close())
	_, err = safe.ImportPool(x, f)
	assert.ErrorContains(t, err, "closed file")
	assert.Equal(t, readWrite, accessOf(t, imported, y))

	_, err = safe.ImportBuffer[float32](imported, data, sharedValues+1)
	assert.ErrorIs(t, err, safe.ErrRange)
	_, err = safe.ImportBuffer[float32](imported, driver.CUmemPoolPtrExportData{}, 1)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	_, err = safe.ImportBuffer[*int](imported, data, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	_, err = safe.NewBufferFrom[float32](imported, stream(t, y), 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorIs(t, imported.MakeCurrent(), safe.ErrInvalidArgument)
	_, err = imported.Export()
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)

	i, err := safe.ImportBuffer[float32](imported, data, sharedValues)
	require.NoError(t, err)
	require.NoError(t, imported.Close(), "before its buffer")
	exchange(t, i)
	other := stream(t, y)
	require.NoError(t, i.FillAsync(other, 1))
	_, err = i.ExportPointer()
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	require.NoError(t, i.Close(), "after the work that uses it")
	got := make([]float32, sharedValues)
	require.NoError(t, b.CopyToHost(got), "which is there still")
	assert.EqualValues(t, 1, got[sharedValues-1])

	wrong, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer wrong.Close()
	_, err = safe.ImportPool(x, wrong)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
}

// TestSimImportBesideFree: an import waits for no free of other memory of the pool, but for that of the same.
func TestSimImportBesideFree(t *testing.T) {
	needsSimulated(t)
	needsFiles(t)
	startClean(t) // memory of earlier tests is freed by the same function
	defer simulated.Reset()
	x := open(t, 0)
	p, s := pool(t, x, shared), stream(t, x)
	a, b := bufferFrom[float32](t, p, s, 16), bufferFrom[float32](t, p, s, 16)
	f, err := p.Export()
	require.NoError(t, err)
	q, err := safe.ImportPool(x, f)
	require.NoError(t, errors.Join(err, f.Close()))
	closing(t, q)
	imported := func(b *safe.Buffer[float32]) *safe.Buffer[float32] {
		data, err := b.ExportPointer()
		require.NoError(t, err)
		i, err := safe.ImportBuffer[float32](q, data, 16)
		require.NoError(t, err)
		return i
	}
	first := imported(a)
	simulated.Delay("cuMemFree_v2", hang)
	freed := background(func() { assert.NoError(t, first.Close()) })
	inside(t, "driver.CuMemFree")
	other := imported(b)
	assert.False(t, closed(freed), "an import waits for the free of other memory")
	data, err := a.ExportPointer()
	require.NoError(t, err)
	var again *safe.Buffer[float32]
	imports := background(func() { again, err = safe.ImportBuffer[float32](q, data, 16) })
	assert.False(t, closed(imports), "an import came before the free of the same memory")
	simulated.Reset() // ends the delay
	<-freed
	<-imports
	require.NoError(t, errors.Join(err, again.Fill(0), again.Close(), other.Close()))
	noViolation(t)
}
