"""A pytest-benchmark file that knows nothing of gpubench, timed truly on a GPU:

    pytest examples/test_plain.py --benchmark-timer=gpubench.timer

The timer waits for every accelerator in use before it reads the clock. Without it, pytest-benchmark times how long a
GPU takes to accept the work.
"""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_fft(benchmark):
    signal = torch.randn(64, 4096, device=DEVICE)
    spectrum = benchmark(torch.fft.rfft, signal)
    assert spectrum.shape == (64, 2049)
