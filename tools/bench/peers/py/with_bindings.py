"""The contestant that calls cuda.bindings."""

import ctypes

from peer import LARGEST, Peer


class Bindings(Peer):
    def __init__(self, file):
        super().__init__(file)
        from cuda.bindings import driver as d
        import cuda.bindings

        self.d = d
        self.version = "cuda.bindings " + cuda.bindings.__version__
        ck = self.ck
        ck(d.cuInit(0))
        dev = ck(d.cuDeviceGet(0))
        self.ctx = ck(d.cuDevicePrimaryCtxRetain(dev))
        ck(d.cuCtxSetCurrent(self.ctx))
        self.s = ck(d.cuStreamCreate(1))
        self.e = ck(d.cuEventCreate(2))
        ck(d.cuEventRecord(self.e, self.s))
        m = ck(d.cuModuleLoadData(self.image + b"\0"))
        self.f = {
            n: ck(d.cuModuleGetFunction(m, n.encode()))
            for n in ("nothing", "three", "sixteen", "spin", "mulby")
        }
        self.mem = ck(d.cuMemAlloc(LARGEST))
        self.pin = ck(d.cuMemHostAlloc(LARGEST, 0))
        self.pin = int(self.pin)
        self.floats = (ctypes.c_float * (LARGEST // 4)).from_address(self.pin)
        ctypes.memmove(self.pin, (ctypes.c_float * (LARGEST // 4))(*([1.0] * 16)), 64)
        n = 64
        while n < LARGEST:
            ctypes.memmove(self.pin + n, self.pin, min(n, LARGEST - n))
            n *= 2
        pool = ck(d.cuDeviceGetDefaultMemPool(dev))
        ck(
            d.cuMemPoolSetAttribute(
                pool, d.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, d.cuuint64_t(2**64 - 1)
            )
        )
        self.types3 = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_float)
        self.types16 = (ctypes.c_uint64,) * 16
        self.types1 = (ctypes.c_uint64,)
        self.ps = None
        self.kp = None

    @staticmethod
    def ck(r):
        if r[0]:
            raise RuntimeError(str(r[0]))
        return r[1] if len(r) == 2 else r[1:] if len(r) > 2 else None

    def idle(self):
        self.ck(self.d.cuCtxSynchronize())

    def event_record(self):
        self.ck(self.d.cuEventRecord(self.e, self.s))

    def event_query(self):
        self.ck(self.d.cuEventQuery(self.e))

    def stream_query(self):
        self.ck(self.d.cuStreamQuery(self.s))

    def launch_0(self):
        self.ck(self.d.cuLaunchKernel(self.f["nothing"], 1, 1, 1, 1, 1, 1, 0, self.s, 0, 0))

    def launch_3(self):
        self.ck(
            self.d.cuLaunchKernel(
                self.f["three"], 1, 1, 1, 1, 1, 1, 0, self.s, ((int(self.mem), 1, 2.0), self.types3), 0
            )
        )

    def launch_16(self):
        self.ck(
            self.d.cuLaunchKernel(
                self.f["sixteen"], 1, 1, 1, 1, 1, 1, 0, self.s, (tuple(range(16)), self.types16), 0
            )
        )

    def spin_on(self, s, us):
        self.ck(self.d.cuLaunchKernel(self.f["spin"], 1, 1, 1, 1, 1, 1, 0, s, ((us * 1000,), self.types1), 0))

    def sync_of(self, s):
        self.ck(self.d.cuStreamSynchronize(s))

    def once(self, us):
        if us:
            self.spin_on(self.s, us)
        else:
            self.launch_0()
        self.ck(self.d.cuStreamSynchronize(self.s))

    def new_stream(self):
        return self.ck(self.d.cuStreamCreate(1))

    def drop_streams(self, ss):
        for s in ss:
            self.ck(self.d.cuStreamDestroy(s))

    def thread(self):
        self.ck(self.d.cuCtxSetCurrent(self.ctx))

    def stream_create(self):
        self.ck(self.d.cuStreamDestroy(self.ck(self.d.cuStreamCreate(1))))

    def async_alloc(self):
        self.ck(self.d.cuMemFreeAsync(self.ck(self.d.cuMemAllocAsync(4096, self.s)), self.s))

    def buf_alloc(self):
        self.ck(self.d.cuMemFree(self.ck(self.d.cuMemAlloc(self.arg))))

    def h2d(self, size):
        def f():
            self.ck(self.d.cuMemcpyHtoDAsync(self.mem, self.pin, size, self.s))
            self.ck(self.d.cuStreamSynchronize(self.s))

        return f

    def d2h(self, size):
        def f():
            self.ck(self.d.cuMemcpyDtoHAsync(self.pin, self.mem, size, self.s))
            self.ck(self.d.cuStreamSynchronize(self.s))

        return f

    def build(self, out=None):
        d, ck = self.d, self.ck
        if self.kp is None:
            p = d.CUDA_KERNEL_NODE_PARAMS()
            p.func = self.f["three"]
            p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1
            p.kernelParams = ((int(self.mem), 1, 2.0), self.types3)
            self.kp = p
        g = ck(d.cuGraphCreate(0))
        last = None
        for _ in range(self.arg):
            n = ck(
                d.cuGraphAddKernelNode(
                    g, [last] if last is not None else None, 1 if last is not None else 0, self.kp
                )
            )
            last = n
            if out is not None:
                out.append(n)
        return g

    def make_graphs(self):
        if self.have:
            self.ck(self.d.cuGraphExecDestroy(self.ex))
            self.ck(self.d.cuGraphExecDestroy(self.fresh))
            self.ck(self.d.cuGraphDestroy(self.g1))
            self.ck(self.d.cuGraphDestroy(self.g2))
        self.nodes = []
        self.g1 = self.build(self.nodes)
        self.g2 = self.build()
        self.ex = self.inst(self.g1)
        self.fresh = self.inst(self.g1)

    def inst(self, g):
        return self.ck(self.d.cuGraphInstantiate(g, 0))

    def graph_empty(self):
        self.ck(self.d.cuGraphDestroy(self.ck(self.d.cuGraphCreate(0))))

    def graph_node_set(self):
        for n in self.nodes:
            self.ck(self.d.cuGraphKernelNodeSetParams(n, self.kp))

    def graph_build(self):
        self.ck(self.d.cuGraphDestroy(self.build()))

    def graph_inst(self):
        self.ck(self.d.cuGraphExecDestroy(self.inst(self.g1)))

    def graph_capture(self):
        d, ck = self.d, self.ck
        ck(d.cuStreamBeginCapture(self.s, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        for _ in range(self.arg):
            self.launch_3()
        g = ck(d.cuStreamEndCapture(self.s))
        ck(d.cuGraphExecDestroy(self.inst(g)))
        ck(d.cuGraphDestroy(g))

    def graph_update(self):
        self.ck(self.d.cuGraphExecUpdate(self.ex, self.g2))

    def graph_set(self):
        for n in self.nodes:
            self.ck(self.d.cuGraphExecKernelNodeSetParams(self.ex, n, self.kp))

    def graph_launch(self):
        self.ck(self.d.cuGraphLaunch(self.fresh, self.s))

    def graph_wait(self):
        self.ck(self.d.cuGraphLaunch(self.fresh, self.s))
        self.ck(self.d.cuStreamSynchronize(self.s))

    def pipe(self, chunks, size):
        d, ck = self.d, self.ck
        if not self.ps:
            self.ps = [ck(d.cuStreamCreate(1)) for _ in range(8)]
            self.pd = [ck(d.cuMemAlloc(1 << 20)) for _ in range(8)]
        slots = LARGEST // 2 // size
        cnt = size // 4
        k = self.f["mulby"]
        b = (cnt + 255) // 256
        for c in range(chunks):
            q = c & 7
            o = c % slots * size
            s = self.ps[q]
            m = self.pd[q]
            ck(d.cuMemcpyHtoDAsync(m, self.pin + o, size, s))
            ck(d.cuLaunchKernel(k, b, 1, 1, 256, 1, 1, 0, s, ((int(m), cnt, 2.0), self.types3), 0))
            ck(d.cuMemcpyDtoHAsync(self.pin + LARGEST // 2 + o, m, size, s))
        for s in self.ps:
            ck(d.cuStreamSynchronize(s))
        self.check = self.floats[LARGEST // 8] == 2

    def pipe_1m(self):
        self.pipe(256, 1 << 20)

    def pipe_16k(self):
        self.pipe(2048, 16 << 10)
