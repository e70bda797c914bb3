"""service in CuPy. A request that its client gives up goes on: waiting for CuPy cannot be cancelled."""
import io
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from urllib.parse import parse_qs, urlparse

import cupy as cp
from PIL import Image

julia = cp.RawKernel(r"""extern "C" __global__ void julia(unsigned char *pixels, int width, int height, float re, float im) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width * height) return;
    float x = (i % width - width / 2) * 3.0f / width, y = (i / width - height / 2) * 3.0f / width;
    int n = 0;
    for (; n < 255 && x * x + y * y < 4; n++) {
        float t = x * x - y * y + re;
        y = 2 * x * y + im;
        x = t;
    }
    pixels[i] = n;
}""", "julia")
width, height, workers = 1024, 768, 4
idle = Queue()
for _ in range(workers):
    idle.put((cp.cuda.Stream(), cp.empty((height, width), cp.uint8)))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            query = parse_qs(urlparse(self.path).query)
            re, im = (cp.float32(query[k][0]) for k in ("re", "im"))
        except (KeyError, ValueError) as e:
            return self.send_error(400, str(e))
        try:
            stream, pixels = worker = idle.get(timeout=5)
        except Empty:
            return self.send_error(503)
        try:
            with stream:
                julia(((width * height + 255) // 256,), (256,), (pixels, cp.int32(width), cp.int32(height), re, im))
                picture = pixels.get()
        except cp.cuda.runtime.CUDARuntimeError as e:
            return self.send_error(500, str(e))
        finally:
            idle.put(worker)
        body = io.BytesIO()
        Image.fromarray(picture).save(body, "png")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.getvalue())


host, port = os.environ.get("ADDRESS", "localhost:8080").split(":")
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
