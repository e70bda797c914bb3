"""The contestant that calls CuPy."""

import ctypes

from peer import Peer


class Cupy(Peer):
    def __init__(self, file):
        super().__init__(file)
        import cupy as cp, numpy as np

        self.cp, self.np = cp, np
        self.version = "CuPy " + cp.__version__
        cp.cuda.Device(0).use()
        self.s = cp.cuda.Stream(non_blocking=True)
        self.e = cp.cuda.Event(disable_timing=True)
        self.e.record(self.s)
        self.m = cp.RawModule(path=self.file)
        self.f = {n: self.m.get_function(n) for n in ("nothing", "three", "sixteen", "spin", "mulby")}
        self.mem = cp.cuda.alloc(1 << 20)
        self.a = cp.zeros(256, dtype=cp.float32)
        self.a3 = (self.a, np.uint32(1), np.float32(2))
        self.a16 = tuple(np.uint64(i) for i in range(16))
        self.cp_ = {}
        self.pp = {}
        self.s.use()

    def idle(self):
        self.cp.cuda.Device(0).synchronize()

    def new_stream(self):
        return self.cp.cuda.Stream(non_blocking=True)

    def event_record(self):
        self.e.record(self.s)

    def event_query(self):
        self.e.done

    def stream_query(self):
        self.s.done

    def launch_0(self):
        self.f["nothing"]((1,), (1,), ())

    def launch_3(self):
        self.f["three"]((1,), (1,), self.a3)

    def launch_16(self):
        self.f["sixteen"]((1,), (1,), self.a16)

    def spin_on(self, s, us):
        with s:
            self.f["spin"]((1,), (1,), (self.np.uint64(us * 1000),))

    def sync_of(self, s):
        s.synchronize()

    def once(self, us):
        if us:
            self.f["spin"]((1,), (1,), (self.np.uint64(us * 1000),))
        else:
            self.launch_0()
        self.s.synchronize()

    def thread(self):
        self.cp.cuda.Device(0).use()

    def stream_create(self):
        self.new_stream()

    def async_alloc(self):  # the caching pool of CuPy, on the stream
        self.cp.cuda.alloc(4096)

    def buf_alloc(self):
        self.cp.cuda.alloc(self.arg)

    def sized(self, size):
        if size not in self.cp_:
            self.cp_[size] = (self.cp.cuda.alloc(size), self.cp.cuda.alloc_pinned_memory(size))
        return self.cp_[size]

    def h2d(self, size):
        d, h = self.sized(size)
        p = ctypes.c_void_p(h.ptr)

        def f():
            d.copy_from_host_async(p, size, self.s)
            self.s.synchronize()

        return f

    def d2h(self, size):
        d, h = self.sized(size)
        p = ctypes.c_void_p(h.ptr)

        def f():
            d.copy_to_host_async(p, size, self.s)
            self.s.synchronize()

        return f

    def captured(self):
        self.s.begin_capture(mode=1)
        for _ in range(self.arg):
            self.launch_3()
        return self.s.end_capture()

    def make_graphs(self):
        self.ex = self.captured()

    def graph_capture(self):
        self.captured()

    def graph_launch(self):
        self.ex.launch(self.s)

    def graph_wait(self):
        self.ex.launch(self.s)
        self.s.synchronize()

    def pipe(self, chunks, size):
        cp, np = self.cp, self.np
        if size not in self.pp:
            ss = [self.new_stream() for _ in range(8)]
            hi = [cp.cuda.alloc_pinned_memory(size) for _ in range(32)]
            ho = [cp.cuda.alloc_pinned_memory(size) for _ in range(32)]
            for h in hi:
                np.frombuffer(h, np.float32, size // 4)[:] = 1
            self.pp[size] = (
                ss,
                [cp.zeros(size // 4, cp.float32) for _ in ss],
                hi,
                ho,
                [ctypes.c_void_p(h.ptr) for h in hi],
                [ctypes.c_void_p(h.ptr) for h in ho],
            )
            self.idle()
        ss, ds, hi, ho, pi, po = self.pp[size]
        cnt = np.uint32(size // 4)
        two = np.float32(2)
        k = self.f["mulby"]
        g = ((size // 4 + 255) // 256,)
        for i in range(chunks):
            q, o = i & 7, i % 32
            s = ss[q]
            d = ds[q]

            with s:
                d.data.copy_from_host_async(pi[o], size)
                k(g, (256,), (d, cnt, two))
                d.data.copy_to_host_async(po[o], size)
        for s in ss:
            s.synchronize()
        self.s.use()  # which leaving a with-block ends
        self.check = bool(np.frombuffer(ho[31], np.float32, size // 4)[-1] == 2)

    def pipe_1m(self):
        self.pipe(256, 1 << 20)

    def pipe_16k(self):
        self.pipe(2048, 16 << 10)
