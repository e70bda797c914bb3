"""Calls libshared.so, a library of package safe, while PyTorch's profiler records."""
import ctypes
import sys

import torch
from torch.profiler import ProfilerActivity, profile

library = ctypes.CDLL(sys.argv[1])
before = "before" in sys.argv[2:]
if before and library.CudabindGraphs():
    sys.exit("before the recording: failed")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
    torch.ones(1000, device="cuda").sum().item()
    if library.CudabindGraphs():
        sys.exit("while it records: failed")
if library.CudabindGraphs():
    sys.exit("after the recording: failed")
fills = sum("emset" in e.name for e in recorded.events())
print(f"{fills} fills of graphs were recorded")
if fills < 300:
    sys.exit("there were 300")
