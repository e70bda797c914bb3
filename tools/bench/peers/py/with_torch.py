"""The contestant that calls PyTorch."""

from peer import Peer


class Torch(Peer):
    def __init__(self, file):
        super().__init__(file)
        import torch

        self.t = torch
        self.version = "PyTorch " + torch.__version__
        torch.cuda.init()
        self.s = torch.cuda.Stream()
        self.e = torch.cuda.Event()
        self.e.record(self.s)
        self.a = torch.zeros(1, device="cuda")
        self.cp = {}
        self.pp = {}
        torch.cuda.set_stream(self.s)
        x = torch.cuda.Event(enable_timing=True)
        y = torch.cuda.Event(enable_timing=True)  # cycles of a microsecond
        torch.cuda._sleep(10_000_000)
        x.record()
        torch.cuda._sleep(20_000_000)
        y.record()
        y.synchronize()
        self.cyc = 20_000_000 / (x.elapsed_time(y) * 1000)

    def idle(self):
        self.t.cuda.synchronize()

    def new_stream(self):
        return self.t.cuda.Stream()

    def event_record(self):
        self.e.record(self.s)

    def event_query(self):
        self.e.query()

    def stream_query(self):
        self.s.query()

    def launch_0(self):
        self.a.fill_(1.0)  # a kernel of its own through the dispatcher

    def launch_3(self):
        self.a.add_(1.0)

    def spin_on(self, s, us):
        with self.t.cuda.stream(s):
            self.t.cuda._sleep(int(us * self.cyc))

    def sync_of(self, s):
        s.synchronize()

    def once(self, us):
        if us:
            self.t.cuda._sleep(int(us * self.cyc))
        else:
            self.a.fill_(1.0)
        self.s.synchronize()

    def async_alloc(self):
        self.t.empty(4096, dtype=self.t.uint8, device="cuda")

    def buf_alloc(self):
        self.t.empty(self.arg, dtype=self.t.uint8, device="cuda")

    def sized(self, size):
        t = self.t
        if size not in self.cp:
            self.cp[size] = (
                t.empty(size, dtype=t.uint8, device="cuda"),
                t.empty(size, dtype=t.uint8, pin_memory=True),
            )
        return self.cp[size]

    def h2d(self, size):
        d, h = self.sized(size)

        def f():
            d.copy_(h, non_blocking=True)
            self.s.synchronize()

        return f

    def d2h(self, size):
        d, h = self.sized(size)

        def f():
            h.copy_(d, non_blocking=True)
            self.s.synchronize()

        return f

    def captured(self):
        g = self.t.cuda.CUDAGraph()
        g.capture_begin(capture_error_mode="thread_local")
        for _ in range(self.arg):
            self.a.add_(1.0)
        g.capture_end()
        return g

    def make_graphs(self):
        self.ex = self.captured()

    def graph_capture(self):
        self.captured()

    def graph_launch(self):
        self.ex.replay()

    def graph_wait(self):
        self.ex.replay()
        self.s.synchronize()

    def pipe(self, chunks, size):
        t = self.t
        if size not in self.pp:
            ss = [t.cuda.Stream() for _ in range(8)]
            self.pp[size] = (
                ss,
                [t.empty(size // 4, device="cuda") for _ in ss],
                [t.ones(size // 4).pin_memory() for _ in range(32)],
                [t.empty(size // 4).pin_memory() for _ in range(32)],
            )
            self.idle()
        ss, ds, hi, ho = self.pp[size]
        for i in range(chunks):
            q, o = i & 7, i % 32
            d = ds[q]
            with t.cuda.stream(ss[q]):
                d.copy_(hi[o], non_blocking=True)
                d.mul_(2.0)
                ho[o].copy_(d, non_blocking=True)
        for s in ss:
            s.synchronize()
        self.check = bool(ho[31][-1] == 2)

    def pipe_1m(self):
        self.pipe(256, 1 << 20)

    def pipe_16k(self):
        self.pipe(2048, 16 << 10)
