// Nothing: NVRTC has malloc and free by itself.
#pragma once
