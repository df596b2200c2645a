"""A training script as many are: small pictures from a slow dataset, in the process that trains.

gpubench profile profile_train.py
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
