/* A double of NVML with two GPUs, for the functions that the program gpus calls. */
#include <stdio.h>

struct memory { unsigned long long total, free, used; };
struct load { unsigned gpu, memory; };

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetNVMLVersion(char *version, unsigned length) { snprintf(version, length, "13.0"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { *device = (char *)0 + i + 1; return 0; }
int nvmlDeviceGetName(void *d, char *name, unsigned length) { return snprintf(name, length, "GPU %d", (int)(long)d) < (int)length ? 0 : 7; }
int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { *m = (struct memory){80ULL << 30, 79ULL << 30, (1ULL << 30) * (long)d}; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, struct load *l) { *l = (struct load){(long)d * 30, 0}; return 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *celsius) { *celsius = 40 + (long)d; return sensor; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *milliwatts) { *milliwatts = 100000 * (long)d; return 0; }
