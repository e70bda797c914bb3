/* The types of VDPAU that CUDA's functions take, for parsing alone. */
#pragma once
#include <stdint.h>
typedef uint32_t VdpDevice;
typedef uint32_t VdpFuncId;
typedef uint32_t VdpOutputSurface;
typedef uint32_t VdpVideoSurface;
typedef enum { VDP_STATUS_OK } VdpStatus;
typedef VdpStatus VdpGetProcAddress(VdpDevice device, VdpFuncId function_id, void **function_pointer);
