"""A training script as many are: small pictures from a slow dataset, in the process that trains.

Profile it so:

    gpubench profile profile_train.py

Two busy cores answer (causes and small print follow; * as others used the cores):

    profile_train.py: no GPU makes it more than about 18×* faster on a host like
    this one (the GPUs below likely 12×*): 6% of a step waits for data:
    num_workers=0 at profile_train.py:53

    a step, 32 rows        CPU 2 threads         L4   RTX 4090  A100 80GB       H100
    waiting for data         65 ms   6 %      65 ms      65 ms      65 ms      65 ms
    own Python               19 ms   2 %      19 ms      19 ms      19 ms      19 ms
    Python, launches        2.4 ms   0 % 1.6–4.2 ms 1.6–4.2 ms 1.6–4.2 ms 1.6–4.2 ms
    forward, backward       775 ms  75 % 0.1–0.8 ms   ≤ 0.3 ms 0.1–0.3 ms   ≤ 0.2 ms
    optimizer               178 ms  17 %   ≤ 0.1 ms   ≤ 0.1 ms   ≤ 0.1 ms   ≤ 0.1 ms
    copies in                          –   ≤ 0.1 ms   ≤ 0.1 ms   ≤ 0.1 ms   ≤ 0.1 ms
    a step                  1.04 s ±17%*   86–88 ms   86–88 ms   86–88 ms   86–88 ms
    faster                                     12×*       12×*       12×*       12×*
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Noise instead of pictures: a pause stands for opening and decoding a file."""

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.randn(3, 32, 32), index % 10


def train(epochs=5):
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 16 * 16, 10),
    )
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(epochs):
        for images, labels in DataLoader(Pictures(), batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if loss.item() < 0.01:
                return


if __name__ == "__main__":
    train()
