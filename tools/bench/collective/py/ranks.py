"""All-reduces of torch.distributed, as rank.go has them."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

WARM, GROUPED, REPEATS = 20, 5, 5
PLANS = [(8, 200), (64 << 10, 200), (1 << 20, 200), (16 << 20, 200), (256 << 20, 20)]
if "-short" in sys.argv:
    PLANS = [(8, 5), (64 << 10, 5)]
rank = int(os.environ["RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
if rank == 0:
    print("torch: NCCL", *torch.cuda.nccl.version(), file=sys.stderr)


def median(all):
    return sorted(all)[len(all) // 2] * 1e6


def single(f, times):
    all = []
    for _ in range(WARM + times):
        start = time.perf_counter()
        f()
        torch.cuda.current_stream().synchronize()
        all.append(time.perf_counter() - start)
    return median(all[WARM:])


def means(f, times):
    all = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        for _ in range(times):
            f()
        torch.cuda.current_stream().synchronize()
        all.append((time.perf_counter() - start) / times)
    return median(all[1:])


def group(x):
    with dist._coalescing_manager(device=device):
        for _ in range(GROUPED):
            dist.all_reduce(x)


def captured(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    return graph


for size, times in PLANS:
    x = torch.zeros(size // 4, device=device)
    row = {"bytes": size, "wait": single(lambda: dist.all_reduce(x), times), "many": means(lambda: dist.all_reduce(x), times)}
    for name, measure in {
        "group": lambda: means(lambda: group(x), times),
        "graph": lambda: single(captured(x).replay, times),
    }.items():
        try:
            row[name] = measure()
        except (AttributeError, RuntimeError) as e:
            print(name, e, file=sys.stderr)
    if rank == 0:
        print(json.dumps(row), flush=True)
    del x
dist.barrier()
dist.destroy_process_group()
