"""The contestant that calls cuda.core."""

import ctypes

from peer import Peer


class Core(Peer):
    def __init__(self, file):
        super().__init__(file)
        import cuda.core as c

        try:
            import cuda.core.graph
        except ImportError:
            pass
        self.c = c
        self.version = "cuda.core " + c.__version__
        self.dev = c.Device(0)
        self.dev.set_current()
        self.s = self.new_stream()
        self.e = self.s.record()
        m = c.ObjectCode.from_ptx(self.image)
        self.f = {n: m.get_kernel(n) for n in ("nothing", "three", "sixteen", "spin", "mulby")}
        self.one = c.LaunchConfig(grid=1, block=1)
        from cuda.bindings import driver as d

        pool = d.cuDeviceGetDefaultMemPool(0)[1]
        d.cuMemPoolSetAttribute(
            pool, d.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, d.cuuint64_t(2**64 - 1)
        )
        self.mr = c.DeviceMemoryResource(0)
        self.mem = self.mr.allocate(1 << 20, stream=self.s)
        self.pinned = c.LegacyPinnedMemoryResource()
        self.cp = {}
        self.pp = {}
        import numpy

        self.np = numpy
        self.a16 = tuple(numpy.uint64(i) for i in range(16))
        self.u1 = numpy.uint32(1)
        self.f2 = numpy.float32(2)

    def idle(self):
        self.dev.sync()

    def new_stream(self):
        return self.dev.create_stream(options=self.c.StreamOptions(nonblocking=True))

    def event_record(self):
        self.s.record(self.e)

    def event_query(self):
        self.e.is_done

    def launch_0(self):
        self.c.launch(self.s, self.one, self.f["nothing"])

    def launch_3(self):
        self.c.launch(self.s, self.one, self.f["three"], self.mem, self.u1, self.f2)

    def launch_16(self):
        self.c.launch(self.s, self.one, self.f["sixteen"], *self.a16)

    def spin_on(self, s, us):
        self.c.launch(s, self.one, self.f["spin"], self.np.uint64(us * 1000))

    def sync_of(self, s):
        s.sync()

    def once(self, us):
        if us:
            self.spin_on(self.s, us)
        else:
            self.launch_0()
        self.s.sync()

    def thread(self):
        self.c.Device(0).set_current()

    def drop_streams(self, ss):
        for s in ss:
            s.close()

    def stream_create(self):
        self.new_stream().close()

    def async_alloc(self):
        self.mr.allocate(4096, stream=self.s).close(self.s)

    def buf_alloc(self):
        self.mr.allocate(self.arg, stream=self.s).close(self.s)

    def sized(self, size):
        if size not in self.cp:
            self.cp[size] = (self.mr.allocate(size, stream=self.s), self.pinned.allocate(size))
        return self.cp[size]

    def h2d(self, size):
        d, h = self.sized(size)

        def f():
            d.copy_from(h, stream=self.s)
            self.s.sync()

        return f

    def d2h(self, size):
        d, h = self.sized(size)

        def f():
            d.copy_to(h, stream=self.s)
            self.s.sync()

        return f

    def build(self, out=None):
        g = self.c.graph.GraphDefinition()
        last = g
        k = self.f["three"]
        for _ in range(self.arg):
            last = last.launch(self.one, k, self.mem, self.u1, self.f2)
            if out is not None:
                out.append(last)
        return g

    def make_graphs(self):
        self.nodes = []
        self.ex = self.fresh = None
        try:
            self.g1 = self.build(self.nodes)
            self.g2 = self.build()
            self.ex = self.g1.instantiate()
            self.fresh = self.g1.instantiate()
        except Exception as e:
            self.g1 = None
            self.why = repr(e)
            self.fresh = self.ex = self.captured()

    def graph_empty(self):
        self.c.graph.GraphDefinition()

    def graph_build(self):
        if self.g1 is None:
            raise RuntimeError(self.why)
        self.build()

    def graph_inst(self):
        if self.g1 is None:
            raise RuntimeError(self.why)
        self.g1.instantiate().close()

    def captured(self):
        try:
            b = self.s.create_graph_builder()
        except Exception:
            b = self.dev.create_graph_builder()
        b.begin_building("thread_local")
        k = self.f["three"]
        for _ in range(self.arg):
            self.c.launch(b, self.one, k, self.mem, self.u1, self.f2)
        x = b.end_building().complete()
        b.close()
        return x

    def graph_capture(self):
        self.captured().close()

    def graph_update(self):
        self.ex.update(self.g2)

    def graph_set(self):
        k = self.f["three"]
        for n in self.nodes:
            self.ex[n].update(config=self.one, kernel=k, args=(self.mem, self.u1, self.f2))

    def graph_launch(self):
        self.fresh.launch(self.s)

    def graph_wait(self):
        self.fresh.launch(self.s)
        self.s.sync()

    def pipe(self, chunks, size):
        c = self.c
        if size not in self.pp:
            ss = [self.new_stream() for _ in range(8)]
            hi = [self.pinned.allocate(size) for _ in range(32)]
            ho = [self.pinned.allocate(size) for _ in range(32)]
            for h in hi:
                ctypes.memmove(int(h.handle), (ctypes.c_float * (size // 4))(*([1.0] * (size // 4))), size)
            self.pp[size] = ss, [self.mr.allocate(size, stream=s) for s in ss], hi, ho
        ss, ds, hi, ho = self.pp[size]
        cnt = self.np.uint32(size // 4)
        k = self.f["mulby"]
        cfg = c.LaunchConfig(grid=(size // 4 + 255) // 256, block=256)
        for i in range(chunks):
            q, o = i & 7, i % 32
            s = ss[q]
            d = ds[q]
            d.copy_from(hi[o], stream=s)
            c.launch(s, cfg, k, d, cnt, self.f2)
            d.copy_to(ho[o], stream=s)
        for s in ss:
            s.sync()
        self.check = ctypes.c_float.from_address(int(ho[31].handle)).value == 2

    def pipe_1m(self):
        self.pipe(256, 1 << 20)

    def pipe_16k(self):
        self.pipe(2048, 16 << 10)
