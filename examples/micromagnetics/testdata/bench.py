#!/usr/bin/env python3
"""The steps of micromagnetics -bench in CuPy, launched one by one and as a graph. The tensors are
those that the program writes:

    micromagnetics -bench -tensors /tmp
    python3 bench.py /tmp
"""

import math
import os
import sys
import time

import cupy
import numpy

SATURATION, STIFFNESS, VACUUM, CELL, THICKNESS = 8e5, 1.3e-11, 1.25663706e-6, 4e-9, 20e-9
PICOSECOND = 2.211e5 * SATURATION * 1e-12
STEPS = 500
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernels.cu")

FILM = numpy.dtype([("width", "i4"), ("height", "i4"), ("exchange", "f4"), ("damping", "f4")])


class Solver:
    def __init__(self, edge, folder):
        module = cupy.RawModule(code=open(SOURCE).read())
        self.multiply, self.advance, self.energy = (module.get_function(f) for f in ("multiply", "advance", "energy"))
        exchange = 2 * STIFFNESS / (VACUUM * SATURATION * SATURATION) / (CELL * CELL)
        self.film = numpy.array((edge, edge, exchange, 0.5), FILM)
        self.edge, wide = edge, 2 * edge
        tensor = numpy.fromfile(os.path.join(folder, "tensor-%d" % edge)).reshape(4, wide, wide)
        self.tensor = cupy.fft.rfft2(cupy.asarray(tensor)).real.astype(cupy.float32)
        x, y = numpy.meshgrid(*2 * [numpy.arange(edge) - (edge - 1) / 2])
        length = numpy.sqrt(x * x + y * y + 9)
        self.m = cupy.asarray(numpy.stack([-y / length, x / length, 3 / length]).astype("f4"))
        self.sum = cupy.zeros_like(self.m)
        self.now = [cupy.zeros((3, wide, wide), "f4") for _ in range(2)]
        self.now[0][:, :edge, :edge] = self.m

    def demagnetize(self, now):
        spectrum = cupy.fft.rfft2(now)
        plane = spectrum.size // 3
        self.multiply(((plane + 255) // 256,), (256,), (self.tensor, spectrum, numpy.int32(plane)))
        return cupy.fft.irfft2(spectrum, s=now.shape[1:])

    def cells(self):
        return ((self.edge + 31) // 32, (self.edge + 7) // 8), (32, 8)

    def step(self, dt):
        for stage in range(4):
            now, following = self.now[stage % 2], self.now[1 - stage % 2]
            field = self.demagnetize(now)
            self.advance(*self.cells(), (self.film, numpy.int32(stage), numpy.float32(dt), now, field, self.m, self.sum, following))

    def joules(self):
        total = cupy.zeros(1)
        self.energy(*self.cells(), (self.film, self.now[0], self.demagnetize(self.now[0]), total))
        return float(total[0]) * VACUUM * SATURATION * SATURATION * CELL * CELL * THICKNESS


def timed(s, stream, step, what):
    best = math.inf
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        stream.synchronize()
        best = min(best, (time.perf_counter() - begin) * 1000 / STEPS)
    print("%d x %d, %s: %.4f ms per step, %.4e J" % (s.edge, s.edge, what, best, s.joules()), flush=True)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    dt = 0.5 * PICOSECOND
    for edge in 256, 512, 1024:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            s = Solver(edge, folder)
            timed(s, stream, lambda: s.step(dt), "launches")
            s = Solver(edge, folder)
            start = s.m.copy(), s.now[0].copy()
            s.step(dt)  # makes the plans, and takes memory
            s.m[:], s.now[0][:] = start
            try:
                stream.begin_capture()
                s.step(dt)
                graph = stream.end_capture()
            except Exception as e:
                print("%d x %d, graph: %s" % (edge, edge, e), flush=True)
                return
            timed(s, stream, lambda: graph.launch(stream), "graph")


main()
