#!/usr/bin/env python3
# The products of the benchmarks of package blas by torch.matmul, to run beside them:
#
#	python3 matmul.py
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = False


def measure(name, n, dtype, rounds):
    # Of both signs, as in Go: the more bits of the values differ, the more power a product takes, and the slower it is.
    a, b = ((2 * torch.rand(n, n, device="cuda") - 1).to(dtype) for _ in range(2))
    c = torch.empty(n, n, device="cuda", dtype=dtype)
    for _ in range(3):
        torch.matmul(a, b, out=c)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        torch.matmul(a, b, out=c)
    enqueued = time.perf_counter() - start
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    if n < 64:
        print(f"{name}/torch.matmul {rounds} {enqueued / rounds * 1e9:.0f} ns/op")
    else:
        print(f"{name}/torch.matmul {rounds} {took / rounds * 1e9:.0f} ns/op {2 * n**3 * rounds / took / 1e12:.2f} TFLOP/s")


for _ in range(3):
    measure("Float32_4096", 4096, torch.float32, 300)
    measure("BFloat16_8192", 8192, torch.bfloat16, 600)
    measure("Call", 16, torch.float32, 500)
