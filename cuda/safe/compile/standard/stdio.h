// Nothing: NVRTC has printf by itself.
#pragma once
