//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What errors of cuInit tell the user. The calls of it run in a process of their own, on the
// simulated driver.

package safe_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const startVariable = "CUDABIND_TEST_START"

func TestSimStartErrorsSayWhatToDo(t *testing.T) {
	needsSimulated(t)
	if os.Getenv(startVariable) == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		child := command.Built(self, "-test.run=^TestSimStartErrorsSayWhatToDo$", "-test.timeout=1m")
		child.Env = append(os.Environ(), startVariable+"=1", "CUDA_VISIBLE_DEVICES=7,8")
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	for _, test := range []struct {
		code driver.CUresult
		help []string
	}{
		{driver.CUDA_ERROR_OUT_OF_MEMORY, []string{"ulimit -v"}},
		{driver.CUDA_ERROR_STUB_LIBRARY, []string{"lib64/stubs"}},
		{driver.CUDA_ERROR_NO_DEVICE, []string{"nvidia-smi", "docker run --gpus", `CUDA_VISIBLE_DEVICES is "7,8"`}},
		{driver.CUDA_ERROR_OPERATING_SYSTEM, []string{"device files"}},
		{driver.CUDA_ERROR_SYSTEM_NOT_READY, []string{"nvidia-fabricmanager"}},
		{driver.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, []string{"restart the machine", "libcuda.so.1 of the image"}},
		{driver.CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, []string{"cuda-compat", "LD_LIBRARY_PATH"}},
		{driver.CUDA_ERROR_MPS_CONNECTION_FAILED, []string{"nvidia-cuda-mps-control", "CUDA_MPS_PIPE_DIRECTORY"}},
		{driver.CUDA_ERROR_MPS_SERVER_NOT_READY, []string{"try again"}},
		{driver.CUDA_ERROR_UNKNOWN, []string{"suspended", "modprobe nvidia_uvm"}},
		{driver.CUDA_ERROR_INVALID_VALUE, nil},
	} {
		t.Run(test.code.String(), func(t *testing.T) {
			simulated.Fail("cuInit", 1, uint32(test.code))
			_, err := safe.Devices()
			told := detail(t, err, test.code)
			assert.Equal(t, len(test.help) == 0, told == "", told)
			for _, help := range test.help {
				assert.Contains(t, told, help)
			}
		})
	}
	for name, call := range map[string]func() error{
		"Open":                func() error { _, err := safe.Open(0); return err },
		"NewContext":          func() error { _, err := safe.NewContext(safe.Device{}); return err },
		"BorrowContext":       func() error { _, err := safe.BorrowContext(1, nil); return err },
		"Device.Name":         func() error { _, err := (safe.Device{}).Name(); return err },
		"Device.ResetPrimary": func() error { return (safe.Device{}).ResetPrimary() },
		"WithCaptureMode":     func() error { return safe.WithCaptureMode(safe.CaptureRelaxed, func() error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			simulated.Fail("cuInit", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
			err := call()
			assert.Contains(t, detail(t, err, driver.CUDA_ERROR_UNKNOWN), "suspended")
			assert.Contains(t, err.Error(), name)
		})
	}
	_, err := safe.Devices()
	assert.NoError(t, err, "a later call tries again")
}

func TestDeviceFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no such files")
	}
	for _, test := range []struct {
		name  string
		files map[string]os.FileMode
		want  string
	}{
		{"all there", map[string]os.FileMode{"nvidiactl": 0o600, "nvidia-uvm": 0o600}, ""},
		{"no uvm", map[string]os.FileMode{"nvidiactl": 0o600}, "DEV/nvidia-uvm is missing: run nvidia-modprobe -u -c 0, on the host of a container"},
		{"none", nil, "DEV/nvidiactl is missing: run nvidia-modprobe -u -c 0, on the host of a container; DEV/nvidia-uvm is missing: run nvidia-modprobe -u -c 0, on the host of a container"},
		{"Windows Subsystem for Linux", map[string]os.FileMode{"dxg": 0o600}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dev := t.TempDir()
			for name, mode := range test.files {
				require.NoError(t, os.WriteFile(filepath.Join(dev, name), nil, mode))
			}
			assert.Equal(t, test.want, strings.ReplaceAll(safe.DeviceFiles(dev), dev, "DEV"))
		})
	}
}
