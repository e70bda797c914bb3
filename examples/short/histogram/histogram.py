"""histogram in CuPy."""
import cupy as cp
import numpy as np

histogram = cp.RawKernel(r"""extern "C" __global__ void histogram(const unsigned char *data, int n, unsigned *counts) {
    __shared__ unsigned block[256];
    block[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&block[data[i]], 1);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], block[threadIdx.x]);
}""", "histogram")
n = 1 << 24
data = (np.random.randint(0, 128, n) + np.random.randint(0, 129, n)).astype(np.uint8)
counts = cp.zeros(256, cp.uint32)
histogram((256,), (256,), (cp.asarray(data), cp.int32(n), counts))
want = np.bincount(data, minlength=256)
assert (counts.get() == want).all()
print("byte 128 occurs", want[128], "times")
