"""saxpy in CuPy."""
import cupy as cp

saxpy = cp.RawKernel(r"""extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}""", "saxpy")
n = 1 << 24
x, y = cp.full(n, 3, cp.float32), cp.zeros(n, cp.float32)
start, end = cp.cuda.Event(), cp.cuda.Event()
for _ in range(2):  # the first launch takes longer
    start.record()
    saxpy(((n + 255) // 256,), (256,), (cp.int32(n), cp.float32(2), x, y))
    end.record()
end.synchronize()
assert (y.get() == 12).all()
ms = cp.cuda.get_elapsed_time(start, end)
print(f"{ms:.4f} ms, {12 * n / ms / 1e6:.0f} GB/s")
