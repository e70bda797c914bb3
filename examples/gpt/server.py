"""Serves a model of examples/gpt by PyTorch, with the protocol of gpt -serve, to compare the two:

    python3 server.py gpt.model --port 8081              # a text after the other
    python3 server.py gpt.model --port 8081 --slots 128  # so many at once

It is written as simply as a PyTorch server of this kind can be: threads of the standard library, one
thread that writes all texts, a cache of keys and values, and nothing compiled.
"""

import argparse
import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch
from torch.nn import functional as F

TOKENS, HEAD = 256, 64


def read_model(file, device):
    """Returns the shape and the matrices of a checkpoint: a line of JSON, and then numbers."""
    with open(file, "rb") as f:
        shape = json.loads(f.readline())["Shape"]
        layers, c, context = shape["Layers"], shape["Channels"], shape["Context"]
        sizes = [(TOKENS, c), (context, c)] + [(c, 3 * c), (c, c), (c, 4 * c), (4 * c, c)] * layers + [(c, TOKENS)]
        numbers = torch.frombuffer(bytearray(f.read(4 * sum(a * b for a, b in sizes))), dtype=torch.float32).to(device)
    parts = numbers.split([a * b for a, b in sizes])
    matrices = [part.view(size) for part, size in zip(parts, sizes)]
    # The parts that are multiplied are rounded; the others are added.
    return shape, matrices[:2] + [m.bfloat16() for m in matrices[2:]]


def normalize(x):
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).bfloat16()


class Model:
    def __init__(self, file, slots, device):
        self.shape, matrices = read_model(file, device)
        self.of_token, self.of_place, *layers, self.out = matrices
        self.layers = [layers[i : i + 4] for i in range(0, len(layers), 4)]
        self.context, self.device = self.shape["Context"], device
        size = slots, self.context, 2, self.shape["Channels"] // HEAD, HEAD
        self.cache = [torch.zeros(size, dtype=torch.bfloat16, device=device) for _ in self.layers]

    @torch.inference_mode()
    def step(self, rows):
        """Appends tokens to texts: a row is (slot, place, token). Returns the scores of what follows each."""
        slots, places, tokens = torch.tensor(rows, device=self.device).t()
        x = self.of_token[tokens] + self.of_place[places]
        most = max(place for _, place, _ in rows) + 1
        visible = torch.arange(most, device=self.device) <= places[:, None]
        for (qkv, project, widen, narrow), cache in zip(self.layers, self.cache):
            q, k, v = (normalize(x) @ qkv).view(len(rows), 3, -1, HEAD).unbind(1)
            cache[slots, places] = torch.stack((k, v), 1)
            k, v = cache[slots, :most].permute(2, 0, 3, 1, 4)  # for each row and head
            mixed = F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=visible[:, None, None])
            x = x + mixed.flatten(1) @ project
            x = x + F.gelu(normalize(x) @ widen, approximate="tanh") @ narrow
        return (normalize(x) @ self.out).float()


class Text:
    """A text that is being written. Its tokens come in a queue: None is the end."""

    def __init__(self, prompt, length, temperature):
        self.next, self.place, self.left, self.temperature = list(prompt), 0, length, temperature
        self.tokens, self.cancelled = queue.Queue(), False


def write(model, slots, waiting):
    """Writes texts for ever: the whole prompt of a text in a step, then a token in each."""
    texts = {}
    while True:
        for slot in range(slots):
            if slot not in texts and (not texts or not waiting.empty()):
                texts[slot] = waiting.get()
        rows = [(slot, t.place + i, token) for slot, t in texts.items() for i, token in enumerate(t.next)]
        lasts = torch.tensor([len(t.next) for t in texts.values()]).cumsum(0) - 1
        scores = model.step(rows)[lasts.to(model.device)]
        heat = torch.tensor([[t.temperature] for t in texts.values()], device=model.device)
        random = torch.softmax(scores / heat.clamp(min=1e-6), -1).multinomial(1)[:, 0]
        chosen = torch.where(heat[:, 0] > 0, random, scores.argmax(-1)).tolist()
        for (slot, t), token in zip(list(texts.items()), chosen):
            t.tokens.put(token)
            t.place, t.next, t.left = t.place + len(t.next), [token], t.left - 1
            if t.left == 0 or t.cancelled:
                t.tokens.put(None)
                del texts[slot]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        query = parse_qs(urlsplit(self.path).query)
        length, temperature = int(query.get("length", ["200"])[0]), float(query.get("temperature", ["0.8"])[0])
        prompt = self.rfile.read(int(self.headers["Content-Length"]))
        if not prompt or length < 1 or len(prompt) + length > self.server.model.context:
            return self.send_error(400, "the prompt and the text must fit into the model's context")
        text = Text(prompt, length, temperature)
        self.server.waiting.put(text)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while (token := text.tokens.get()) is not None:
                self.wfile.write(b"1\r\n%c\r\n" % token)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # nobody reads any more
            text.cancelled = True

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model")
    a.add_argument("--port", type=int, default=8081)
    a.add_argument("--slots", type=int, default=1, help="how many texts are written at once")
    o = a.parse_args()
    server = Server(("localhost", o.port), Handler)
    server.model = Model(o.model, o.slots, "cuda" if torch.cuda.is_available() else "cpu")
    server.waiting = queue.Queue()
    threading.Thread(target=write, args=(server.model, o.slots, server.waiting), daemon=True).start()
    print(f"http://localhost:{o.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
