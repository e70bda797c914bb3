#!/usr/bin/env python3
"""The training of main.go in PyTorch, from a model that it has written:

    ./gpt -steps 0 -model start.model -text FILE
    python3 gpt.py -model start.model -text FILE -steps 200 [-compile [MODE]] [-losses FILE]
    torchrun --nproc-per-node 2 gpt.py ...
"""

import argparse
import json
import math
import os
import resource
import time

TOKENS, HEAD, TEST_PART = 256, 64, 10


def sample(text, seed, step, first, sequences, context):
    """The sequences of a step: the same as those of the kernel sample."""
    import numpy as np

    starts, mask = [], 2**64 - 1
    for i in range(sequences):
        z = (seed + ((step << 32) + first + i) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        starts.append((z ^ z >> 31) % (len(text) - context))
    return np.stack([text[at : at + context + 1] for at in starts])


def main():
    begin = time.perf_counter()
    import numpy as np
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    parser = argparse.ArgumentParser()
    parser.add_argument("-model", default="start.model")
    parser.add_argument("-text", required=True)
    parser.add_argument("-sequences", type=int, default=32)
    parser.add_argument("-steps", type=int, default=200)
    parser.add_argument("-rate", type=float, default=1e-3)
    parser.add_argument("-dropout", type=float, default=0.1)
    parser.add_argument("-seed", type=int, default=1)
    parser.add_argument("-report", type=int, default=10)
    parser.add_argument("-compile", nargs="?", const="default", help="by torch.compile in this mode, such as reduce-overhead, which makes graphs")
    parser.add_argument("-losses", help="write the loss of each step to this file")
    o = parser.parse_args()
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    torch.manual_seed(o.seed + rank)  # of dropout
    if size > 1:
        dist.init_process_group("nccl", device_id=device)

    with open(o.model, "rb") as f:
        shape = json.loads(f.readline())["Shape"]
        values = torch.from_numpy(np.fromfile(f, dtype="<f4"))
    layers, channels, context = shape["Layers"], shape["Channels"], shape["Context"]
    place = 0

    def matrix(rows, cols):
        nonlocal place
        part = values[place : place + rows * cols].view(rows, cols).clone()
        place += rows * cols
        return torch.nn.Parameter(part)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.project = matrix(channels, 3 * channels), matrix(channels, channels)
            self.widen, self.narrow = matrix(channels, 4 * channels), matrix(4 * channels, channels)

        def forward(self, x):
            y = F.rms_norm(x, (channels,), eps=1e-6)
            q, k, v = (y @ self.qkv).view(*y.shape[:2], 3, channels // HEAD, HEAD).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + F.dropout(y @ self.project, o.dropout)
            y = F.gelu(F.rms_norm(x, (channels,), eps=1e-6) @ self.widen, approximate="tanh")
            return x + F.dropout(y @ self.narrow, o.dropout)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.of_token, self.of_place = matrix(TOKENS, channels), matrix(context, channels)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
            self.out = matrix(channels, TOKENS)

        def forward(self, tokens, targets):
            x = F.embedding(tokens, self.of_token) + self.of_place
            for layer in self.layers:
                x = layer(x)
            scores = F.rms_norm(x, (channels,), eps=1e-6) @ self.out
            return F.cross_entropy(scores.view(-1, TOKENS), targets.reshape(-1))

    model = Model().to(device)
    parameters = list(model.parameters())
    if size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    if o.compile:
        model = torch.compile(model, mode=o.compile)
    optimizer = torch.optim.AdamW(parameters, lr=o.rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    text = np.fromfile(o.text, dtype=np.uint8)[: 64 << 20]
    text = text[: len(text) - len(text) // TEST_PART]
    warm_up, own = min(100, o.steps // 10), o.sequences // size
    losses = torch.zeros(o.steps, device=device)

    def step(i):
        drawn = torch.from_numpy(sample(text, o.seed, i, rank * own, own, context)).pin_memory().to(device, non_blocking=True).long()
        part = min(max((i - warm_up) / max(o.steps - warm_up, 1), 0), 1)
        rate = o.rate * (i + 1) / warm_up if i < warm_up else o.rate * (0.55 + 0.45 * math.cos(math.pi * part))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(drawn[:, :-1], drawn[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses[i] = loss.detach()

    for i in range(o.steps):
        step(i)
        if i == 0:
            torch.cuda.synchronize()
            if rank == 0:
                print(f"first step after {time.perf_counter() - begin:.1f} s", flush=True)
        if i == 9:  # compiled, and warm
            torch.cuda.synchronize()
            warm, cpu = time.perf_counter(), time.process_time()
        if (i + 1) % o.report == 0 and rank == 0:
            print(f"step {i + 1} of {o.steps}, loss {losses[i].item():.4f}", flush=True)
    torch.cuda.synchronize()
    if size > 1:
        dist.all_reduce(losses, op=dist.ReduceOp.AVG)
    if rank == 0:
        n = max(o.steps - 10, 1)
        each = (time.perf_counter() - warm) / n
        print(
            f"GPUs: {size}, ms per step: {each * 1000:.2f}, tokens/s: {o.sequences * context / each:.0f}, "
            f"CPU ms per step: {(time.process_time() - cpu) / n * 1000:.2f}, "
            f"GPU MiB: {torch.cuda.max_memory_reserved() >> 20}, host MiB: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}, "
            f"final loss: {losses[-1].item():.4f}"
        )
        if o.losses:
            losses.cpu().numpy().astype("<f4").tofile(o.losses)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
