"""gpus with NVIDIA's module pynvml (package nvidia-ml-py)."""
import pynvml as nvml

nvml.nvmlInit()
print(f"{'GPU':<5}{'name':<30}{'memory used':<13}{'of':<12}{'load':<6}{'temperature':<13}power")
for i in range(nvml.nvmlDeviceGetCount()):
    d = nvml.nvmlDeviceGetHandleByIndex(i)
    memory = nvml.nvmlDeviceGetMemoryInfo(d)
    used, total = (f"{v >> 20} MiB" for v in (memory.used, memory.total))
    load = f"{nvml.nvmlDeviceGetUtilizationRates(d).gpu}%"
    celsius = f"{nvml.nvmlDeviceGetTemperature(d, nvml.NVML_TEMPERATURE_GPU)} °C"
    watts = nvml.nvmlDeviceGetPowerUsage(d) / 1000
    print(f"{i:<5}{nvml.nvmlDeviceGetName(d):<30}{used:<13}{total:<12}{load:<6}{celsius:<13}{watts:.0f} W")
nvml.nvmlShutdown()
