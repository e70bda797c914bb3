// Nothing: NVRTC has memcpy and memset by itself.
#pragma once
