package safe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// initialize loads and initializes the driver with the first use of the package. Its errors say
// what the user can do.
func initialize() error {
	err := rt.Init()
	if code, ok := err.(driver.CUresult); ok && startHelp[code] != "" {
		return &Error{Code: code, Err: code, Detail: howToStart(code, "/dev")}
	}
	return err
}

// startHelp says what to do about the codes of cuInit.
var startHelp = map[driver.CUresult]string{
	driver.CUDA_ERROR_OUT_OF_MEMORY:                  "raise the limit of the address space (ulimit -v) or of the container's memory",
	driver.CUDA_ERROR_STUB_LIBRARY:                   "take the toolkit's folder lib64/stubs out of LD_LIBRARY_PATH",
	driver.CUDA_ERROR_NO_DEVICE:                      "see whether nvidia-smi lists a GPU, whether CUDA_VISIBLE_DEVICES hides it, and whether the container was started with GPUs (docker run --gpus all)",
	driver.CUDA_ERROR_OPERATING_SYSTEM:               "see whether limits or rights of the process, the sandbox or the container keep the driver from its device files",
	driver.CUDA_ERROR_SYSTEM_NOT_READY:               "start the fabric manager, which machines with NVSwitches need in the driver's version (systemctl start nvidia-fabricmanager); after a start of the machine, wait for it",
	driver.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:         "the driver was updated and its old kernel module is still loaded: restart the machine; in a container, see whether a libcuda.so.1 of the image hides the host's",
	driver.CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: "take the forward compatibility package (cuda-compat) out of LD_LIBRARY_PATH or the image: it does not serve this GPU; the installed driver does",
	driver.CUDA_ERROR_MPS_CONNECTION_FAILED:          "start the MPS daemon (nvidia-cuda-mps-control -d) with the same CUDA_MPS_PIPE_DIRECTORY and user, or unset the variable",
	driver.CUDA_ERROR_MPS_SERVER_NOT_READY:           "try again later; if it lasts, restart the MPS daemon (nvidia-cuda-mps-control)",
	driver.CUDA_ERROR_UNKNOWN:                        "if the machine was suspended, reload the kernel module (rmmod nvidia_uvm, then modprobe nvidia_uvm) or restart the machine",
}

// howToStart returns the help for a code, with what is wrong with the driver's files in dev.
func howToStart(code driver.CUresult, dev string) string {
	help := startHelp[code]
	switch code {
	case driver.CUDA_ERROR_NO_DEVICE, driver.CUDA_ERROR_OPERATING_SYSTEM, driver.CUDA_ERROR_UNKNOWN:
		if wrong := deviceFiles(dev); wrong != "" && runtime.GOOS == "linux" {
			help = wrong + "; " + help
		}
	}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set && code == driver.CUDA_ERROR_NO_DEVICE {
		help += fmt.Sprintf("; CUDA_VISIBLE_DEVICES is %q", visible)
	}
	return help
}

// deviceFiles says which of the driver's files in dev are missing or refuse this process, "" if none.
func deviceFiles(dev string) string {
	if _, err := os.Stat(filepath.Join(dev, "dxg")); err == nil {
		return "" // the Windows Subsystem for Linux has this file only
	}
	var wrong []string
	for _, name := range []string{"nvidiactl", "nvidia-uvm"} {
		path := filepath.Join(dev, name)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		switch {
		case err == nil:
			_ = f.Close()
		case errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, path+" is missing: run nvidia-modprobe -u -c 0, on the host of a container")
		case errors.Is(err, fs.ErrPermission):
			wrong = append(wrong, "this user may not open "+path)
		}
	}
	return strings.Join(wrong, "; ")
}
