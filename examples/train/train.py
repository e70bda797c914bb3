#!/usr/bin/env python3
"""The same training as that of main.go in PyTorch, from the same points and parameters:

    python3 train.py
    torchrun --nproc-per-node 2 train.py
"""

import argparse
import math
import os
import sys
import time

ARMS = 3
SIZES = [2, 64, 64, ARMS]
WARM_UP = 3  # steps that PyTorch wants before a capture


def random(state):
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield (state >> 8) / 2**24


def spiral(n):
    r = random(1)
    points, labels = [], []
    for i in range(n):
        arm, far = i % ARMS, (i + 0.5) / n
        angle = 2 * math.pi * (far + arm / ARMS) + 0.4 * (next(r) - 0.5)
        points.append([far * math.cos(angle), far * math.sin(angle)])
        labels.append(arm)
    return points, labels


def initial():
    r = random(2)
    values = []
    for inputs, outputs in zip(SIZES, SIZES[1:]):
        largest = math.sqrt(6 / inputs)
        values += [largest * (2 * next(r) - 1) for _ in range(inputs * outputs)]
        values += [0.0] * outputs
    return values


def main():
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser()
    parser.add_argument("-steps", type=int, default=1000)
    parser.add_argument("-points", type=int, default=6144)
    o = parser.parse_args()
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if o.points % size:
        sys.exit(f"-points {o.points} is no multiple of the number of GPUs, {size}")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    if size > 1:
        dist.init_process_group("nccl")

    points, labels = spiral(o.points)
    share = slice(rank * o.points // size, (rank + 1) * o.points // size)
    points = torch.tensor(points[share], device=device)
    labels = torch.tensor(labels[share], device=device)

    # All parameters are one tensor, and so are their gradients with the loss at the end.
    start = torch.tensor(initial(), device=device)
    parameters = start.clone().requires_grad_()
    gradient = torch.zeros(len(start) + 1, device=device)
    parameters.grad = gradient[:-1]
    layers, at = [], 0
    for inputs, outputs in zip(SIZES, SIZES[1:]):
        for shape in (inputs, outputs), (outputs,):
            end = at + math.prod(shape)
            view = parameters.detach()[at:end].view(shape).requires_grad_()
            view.grad = gradient[at:end].view(shape)
            layers.append(view)
            at = end
    optimizer = torch.optim.SGD([parameters], lr=0.1, momentum=0.9, fused=True)
    losses = torch.zeros(max(o.steps, WARM_UP), device=device)
    done = torch.zeros(1, dtype=torch.int64, device=device)

    def step():
        gradient.zero_()
        x = points
        for i in range(0, len(layers), 2):
            x = torch.addmm(layers[i + 1], x, layers[i])
            if i < len(layers) - 2:
                x = torch.relu(x)
        loss = torch.nn.functional.cross_entropy(x, labels)
        loss.backward()
        gradient[-1:].copy_(loss.detach().view(1))
        if size > 1:
            dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
        optimizer.step()
        losses.index_copy_(0, done, gradient[-1:])
        done.add_(1)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
        with torch.no_grad():  # undo them
            parameters.copy_(start)
        optimizer.state[parameters]["momentum_buffer"].zero_()
        done.zero_()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()

    begin = time.perf_counter()
    for i in range(1, o.steps + 1):
        graph.replay()
        if i == o.steps or i % max(o.steps // 10, 1) == 0:
            loss = losses.tolist()[i - 1]
            if rank == 0:
                print(f"\rstep {i} of {o.steps}, loss {loss:.4f}", end="", flush=True)
    each = (time.perf_counter() - begin) * 1000 / o.steps
    if rank == 0:
        print(f"\nGPUs: {size}, ms per step: {each:.4f}, final loss: {loss:.6f}")
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
