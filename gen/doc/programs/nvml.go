package programs

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/nvml"
)

// Power prints what each GPU draws.
func Power() error {
	if err := nvml.NvmlInit_v2(); err != nil {
		return err
	}
	defer nvml.NvmlShutdown()
	var n, milliwatts uint32
	if err := nvml.NvmlDeviceGetCount_v2(&n); err != nil {
		return err
	}
	for i := range n {
		var device nvml.NvmlDevice_t
		var name [nvml.NVML_DEVICE_NAME_V2_BUFFER_SIZE]byte
		if err := nvml.NvmlDeviceGetHandleByIndex_v2(i, &device); err != nil {
			return err
		}
		err := errors.Join(
			nvml.NvmlDeviceGetName(device, &name[0], uint32(len(name))),
			nvml.NvmlDeviceGetPowerUsage(device, &milliwatts))
		if err != nil {
			return err
		}
		text, _, _ := bytes.Cut(name[:], []byte{0})
		fmt.Printf("%s: %d W\n", text, milliwatts/1000)
	}
	return nil
}
