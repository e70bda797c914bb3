// Command gpus prints a table of the machine's GPUs: memory, load, temperature and power, by NVML.
package main

import (
	"fmt"
	"log"
	"os"
	"text/tabwriter"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nvml"
)

func main() {
	check(nvml.NvmlInit_v2())
	var count uint32
	check(nvml.NvmlDeviceGetCount_v2(&count))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GPU\tname\tmemory used\tof\tload\ttemperature\tpower")
	for i := range count {
		var d nvml.NvmlDevice_t
		check(nvml.NvmlDeviceGetHandleByIndex_v2(i, &d))
		name := make([]byte, nvml.NVML_DEVICE_NAME_V2_BUFFER_SIZE)
		check(nvml.NvmlDeviceGetName(d, &name[0], uint32(len(name))))
		var memory nvml.NvmlMemory_t
		check(nvml.NvmlDeviceGetMemoryInfo(d, &memory))
		var load nvml.NvmlUtilization_t
		var celsius, milliwatts uint32
		check(nvml.NvmlDeviceGetUtilizationRates(d, &load))
		//lint:ignore SA1019 older drivers have no other
		check(nvml.NvmlDeviceGetTemperature(d, nvml.NVML_TEMPERATURE_GPU, &celsius))
		check(nvml.NvmlDeviceGetPowerUsage(d, &milliwatts))
		fmt.Fprintf(table, "%d\t%s\t%d MiB\t%d MiB\t%d%%\t%d °C\t%.0f W\n",
			i, ffi.GoStringN(name), memory.Used>>20, memory.Total>>20, load.Gpu, celsius, float64(milliwatts)/1000)
	}
	check(table.Flush())
	check(nvml.NvmlShutdown())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
