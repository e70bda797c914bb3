"""mlp in PyTorch."""
import numpy as np
import torch

sizes, batch = [784, 512, 256, 10], 256
values = torch.rand(batch, sizes[0]) * 0.2 - 0.1
want = values[0].numpy()
values = values.cuda()
for m, n in zip(sizes, sizes[1:]):
    layer = torch.nn.Linear(m, n)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    with torch.no_grad():
        values = torch.relu(layer.cuda()(values))
    want = np.maximum(w @ want + b, 0)
got = values[0].cpu().numpy()
assert np.allclose(got, want, atol=1e-4), (got, want)
print(got)
