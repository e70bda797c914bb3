"""The contestants in Python: peer.py KERNELS.ptx bindings|core|cupy|torch. They answer as serve.go does."""

import importlib
import json
import resource
import sys
import threading
import time

LARGEST = 64 << 20
now = time.perf_counter_ns


def cpu():
    """The CPU time of the process, in microseconds."""
    u = resource.getrusage(resource.RUSAGE_SELF)
    return (u.ru_utime + u.ru_stime) * 1e6


class Peer:
    """A contestant. A method of an item's name does the item once."""

    version = ""
    check = True  # whether the last pipeline computed what it should
    have = None  # how many kernels the graphs have

    def __init__(self, file):
        """Takes the file of the kernels."""
        self.file = file
        with open(file, "rb") as f:
            self.image = f.read()

    def plain(self, n, f):
        self.idle()
        t = now()
        for _ in range(n):
            f()
        return now() - t

    def batched(self, n, f, batch=200):
        total = 0
        while n > 0:
            k = min(n, batch)
            self.idle()
            t = now()
            for _ in range(k):
                f()
            total += now() - t
            n -= k
        self.idle()
        return total

    def launch_100(self):
        for _ in range(100):
            self.launch_3()

    def op(self, name, arg, n):
        """Does an item n times, and returns how many ns that took."""
        self.arg = arg
        f = getattr(self, name)
        if name.startswith("graph_") and name not in ("graph_capture", "graph_empty"):
            self.ready()
        if name == "launch_100":
            return self.batched(n, f, 2)
        if name in ("event_record", "launch_0", "launch_3", "launch_16", "async_alloc"):
            return self.batched(n, f)
        if name == "graph_launch":
            return self.batched(n, f, max(4, 200 // arg))
        if name in ("h2d", "d2h"):
            g = f(arg)
            return self.plain(n, g)
        return self.plain(n, f)

    def ready(self):
        if self.have != self.arg:
            self.make_graphs()
            self.have = self.arg

    def wait(self, us):
        n = 40 if us >= 2000 else 150 if us >= 200 else 800
        self.idle()
        for _ in range(3):
            self.once(us)
        c = cpu()
        v = []
        for _ in range(n):
            t = now()
            self.once(us)
            v.append(round((now() - t) / 1e3, 1))
        return {"s": v, "cpu": (cpu() - c) / n}

    def many(self, w, reps):
        ss = [self.new_stream() for _ in range(w)]
        for s in ss:
            self.spin_on(s, 1)
        self.idle()
        go, end = threading.Barrier(w + 1), threading.Barrier(w + 1)
        bad = []

        def work(s):
            try:
                self.thread()
                go.wait()
                for _ in range(reps):
                    self.spin_on(s, 500)
                    self.sync_of(s)
            except Exception as e:
                bad.append(repr(e))
            end.wait()

        threading.stack_size(256 << 10)
        th = [threading.Thread(target=work, args=(s,)) for s in ss]
        for t in th:
            t.start()
        c = cpu()
        go.wait()
        t = now()
        end.wait()
        t = now() - t
        c = cpu() - c
        for x in th:
            x.join()
        self.drop_streams(ss)
        if bad:
            raise RuntimeError(bad[0])
        return {"wall": t / 1e6, "cpu": c / 1e3}

    def thread(self):
        pass

    def drop_streams(self, ss):
        pass


def measure(p, rounds, name, arg, ms):
    if not hasattr(p, name):
        return {"na": "none"}
    n = rounds.get((name, arg))
    if n is None:
        p.op(name, arg, 1)  # can take milliseconds, to load a kernel or to fill a pool
        n = 1
        while True:
            t = p.op(name, arg, n)
            if t >= ms * 1e6 / 4 or n >= 1 << 22:
                break
            n *= 2
        n = rounds[name, arg] = max(1, int(n * ms * 1e6 / t))
    p.op(name, arg, n // 8 + 1)
    r = {"ns": p.op(name, arg, n) / n}
    if name.startswith("pipe"):
        r["wrong"] = not p.check
    return r


def answer(p, rounds, name, arg, ms):
    try:
        if name == "wait":
            return p.wait(arg)
        if name == "many":
            return p.many(arg, int(ms))
        return measure(p, rounds, name, arg, ms)
    except Exception as e:
        return {"na": repr(e)[:200]}


def main():
    file, name = sys.argv[1:]
    p = getattr(importlib.import_module("with_" + name), name.capitalize())(file)
    print(json.dumps({"ready": p.version}), flush=True)
    rounds = {}
    for line in sys.stdin:
        words = line.split()
        if words:
            arg, ms = [float(w) for w in words[1:3]] + [0, 20][len(words) - 1 :]
            print(json.dumps(answer(p, rounds, words[0], int(arg), ms)), flush=True)


if __name__ == "__main__":
    sys.modules["peer"] = sys.modules["__main__"]  # with_*.py import this file
    try:
        main()
    except Exception as e:
        print(json.dumps({"na": repr(e)[:300]}), flush=True)
        raise
