//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBinaryImages loads what NVIDIA's compiler makes of the kernels.
func TestBinaryImages(t *testing.T) {
	if !onGPU {
		t.Skip("the simulated driver loads PTX alone")
	}
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("needs nvcc: ", err)
	}
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 10)
	major, minor, err := x.Device().ComputeCapability()
	require.NoError(t, err)
	dir := t.TempDir()
	source := filepath.Join(dir, "kernels.ptx")
	ptx, err := os.ReadFile("testdata/kernels.ptx")
	require.NoError(t, err)
	ptx = bytes.Replace(ptx, []byte("sm_70"), []byte("sm_75"), 1) // older ones are not compiled any more
	require.NoError(t, os.WriteFile(source, ptx, 0o666))
	for _, kind := range []string{"cubin", "fatbin"} {
		t.Run(kind, func(t *testing.T) {
			file := filepath.Join(dir, "kernels."+kind)
			out, err := exec.Command(nvcc, "-"+kind, fmt.Sprintf("-arch=sm_%d%d", major, minor), "-o", file, source).CombinedOutput()
			require.NoError(t, err, "%s", out)
			m, err := safe.LoadFile(x, file)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			fill, err := m.Kernel("fill")
			require.NoError(t, err)
			require.NoError(t, fill.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(float32(len(kind))), b.Arg()))
			got := make([]float32, 10)
			require.NoError(t, b.CopyToHost(got))
			assert.EqualValues(t, len(kind), got[9])
		})
	}
}

const ipcVariable = "CUDABIND_TEST_IPC_EVENT"

// TestIPCEvent has another process wait for an event of this one.
func TestIPCEvent(t *testing.T) {
	if !onGPU {
		t.Skip("other processes are not simulated")
	}
	if text := os.Getenv(ipcVariable); text != "" {
		waitForIPCEvent(t, text)
		return
	}
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	e, err := safe.NewEventWith(x, safe.EventOptions{Interprocess: true, DisableTiming: true})
	require.NoError(t, err)
	closing(t, e)
	h, err := e.IPCHandle()
	require.NoError(t, err)
	g.shut(t, s)
	require.NoError(t, s.Record(e))

	self, err := os.Executable()
	require.NoError(t, err)
	other := command.Built(self, "-test.run=^TestIPCEvent$", "-test.timeout=1m")
	other.Env = append(os.Environ(), ipcVariable+"="+hex.EncodeToString(h.Reserved[:]))
	other.Stderr = os.Stderr
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	said := bufio.NewScanner(out)
	require.True(t, said.Scan())
	assert.Equal(t, "done: false", said.Text())
	g.open()
	require.True(t, said.Scan())
	assert.Equal(t, "done: true", said.Text())
	require.NoError(t, other.Wait())
}

// waitForIPCEvent is the other process.
func waitForIPCEvent(t *testing.T, text string) {
	var h driver.CUipcEventHandle
	raw, err := hex.DecodeString(text)
	require.NoError(t, err)
	require.Equal(t, len(h.Reserved), copy(h.Reserved[:], raw))
	x := open(t, 0)
	e, err := safe.OpenIPCEvent(x, h)
	require.NoError(t, err)
	closing(t, e)
	done, err := e.Query()
	require.NoError(t, err)
	fmt.Println("done:", done)
	require.NoError(t, e.Synchronize())
	done, err = e.Query()
	require.NoError(t, err)
	fmt.Println("done:", done)
}
