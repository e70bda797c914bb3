"""fft in CuPy."""
import cupy as cp
import numpy as np

n, frequency = 1 << 12, 1234
signal = np.sin(2 * np.pi * frequency * np.arange(n) / n).astype(np.float32)
spectrum = cp.fft.rfft(cp.asarray(signal))
strong = (cp.abs(spectrum) > n / 4).get()
assert list(np.flatnonzero(strong)) == [frequency]
print("the frequency is", frequency)
