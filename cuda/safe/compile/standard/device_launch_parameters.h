// Nothing: NVRTC declares by itself what kernels use of it.
#pragma once
