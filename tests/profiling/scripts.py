"""Short scripts of many shapes, each run bare and watched: output, exit code, files and random stream must be equal.

Each begins with PRELUDE. STEPS has the mark of their steps: an optimizer, or a rank; None where no step is to be found.
"""

from __future__ import annotations

import re

PLAN = {"steps": 3, "warm": 2, "most_warm": 3, "fewest": 3, "traced": 1, "sampled_s": 0.01}
PLAN |= {"steps_s": 0.0, "warm_s": 0.0}
"""Few steps, so that all phases come in short scripts."""
PRELUDE = """
import os, sys, time, torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.set_num_threads(1)
torch.manual_seed(0)
class Rows(Dataset):
    def __len__(self): return 480
    def __getitem__(self, i): return torch.full((8,), i / 480) + torch.rand(8) / 9, i % 3
def network(): return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
def step(net, opt, x, y):
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step(); return loss
def batches(**how): return DataLoader(Rows(), batch_size=12, shuffle=True, **how)
"""

CORPUS = """# sgd
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in batches(): loss = step(net, opt, x, y)
# two_workers
net = network(); opt = torch.optim.Adam(net.parameters())
for x, y in batches(num_workers=2): loss = step(net, opt, x, y)
# loader_for_each_epoch
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(9):
    for _, (x, y) in zip(range(4), batches(num_workers=0)): loss = step(net, opt, x, y)
# iterable
class Stream(IterableDataset):
    def __iter__(self):
        for i in range(400): yield torch.rand(8), i % 3
net = network(); opt = torch.optim.AdamW(net.parameters())
for x, y in DataLoader(Stream(), batch_size=10): loss = step(net, opt, x, y)
# accumulation
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
plan = torch.optim.lr_scheduler.StepLR(opt, 5); scaler = torch.amp.GradScaler("cpu")
for _ in range(2):
    for i, (x, y) in enumerate(batches()):
        with torch.autocast("cpu"): loss = F.cross_entropy(net(x), y) / 2
        scaler.scale(loss).backward()
        if i % 2:
            scaler.unscale_(opt); nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt); scaler.update(); opt.zero_grad(); plan.step()
# copies_of_the_network
import copy
net = network(); opt = torch.optim.AdamW(net.parameters()); ema = torch.optim.swa_utils.AveragedModel(net)
for x, y in batches():
    loss = step(net, opt, x, y); ema.update_parameters(net)
torch.save(net, "net.pt"); torch.save(copy.deepcopy(ema).state_dict(), "ema.pt")
# critic
net, critic = network(), nn.Linear(3, 1)
own, other = torch.optim.Adam(net.parameters()), torch.optim.Adam(critic.parameters())
for _ in range(30):
    for _ in range(3):
        fake = net(torch.randn(12, 8)).detach().requires_grad_()
        grad, = torch.autograd.grad(critic(fake).sum(), fake, create_graph=True)
        loss = critic(fake).mean() + ((grad.norm(dim=1) - 1) ** 2).mean()
        other.zero_grad(); loss.backward(); other.step()
    own.zero_grad(); (-critic(net(torch.randn(12, 8))).mean()).backward(); own.step()
# no_optimizer
w = torch.randn(8, 3, requires_grad=True)
for i in range(40):
    x = torch.randn(12, 8); loss = (x @ w).square().mean(); loss.backward()
    with torch.no_grad(): w -= 0.1 * w.grad; w.grad.zero_()
# inference
net = network().eval()
with torch.inference_mode():
    for x, _ in batches(): loss = net(x).sum()
# encoder
net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
with torch.no_grad():
    for _ in range(40): loss = net(torch.randn(4, 6, 8)).sum()
# compiled
net = torch.compile(network(), backend="eager"); opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in batches(): loss = step(net, opt, x, y)
# everyday
import argparse, atexit, logging, pickle, random, signal
import numpy as np
class Kept:
    def __init__(self, value): self.value = value
parser = argparse.ArgumentParser(); parser.add_argument("--lr", type=float, default=0.1); args = parser.parse_args()
atexit.register(lambda: print("at exit", args.lr))
random.seed(1); signal.signal(signal.SIGTERM, lambda *_: sys.exit(4)); logging.basicConfig(stream=sys.stdout)
net = network(); opt = torch.optim.SGD(net.parameters(), args.lr)
for x, y in batches(): loss = step(net, opt, x, y); logging.info("%f", loss.item())
open("kept.pkl", "wb").write(pickle.dumps(Kept(float(loss))))
print(pickle.load(open("kept.pkl", "rb")).value, random.random(), np.random.rand(), __name__, sys.argv[1:])
print(loss, torch.rand(2)); sys.exit(3)
# swallows
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
try:
    for x, y in batches():
        try: loss = step(net, opt, x, y); print("step")
        except: continue
finally: torch.save(net.state_dict(), "best.pt")
# four_steps
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(4): loss = step(net, opt, torch.randn(4, 8), torch.tensor([0, 1, 2, 0]))
# thread
import threading
def train():
    global loss
    net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in batches(): loss = step(net, opt, x, y)
thread = threading.Thread(target=train); thread.start(); thread.join()
# forked_child_ends_last
ready, done = os.pipe(); loss = torch.zeros(1); child = os.fork(); net = network()
if child: opt = torch.optim.SGD(net.parameters(), 0.1)
else: opt = torch.optim.Adam(net.parameters()); os.read(ready, 1)
for x, y in batches(): loss = step(net, opt, x, y)
if child: os.write(done, b"1"); os.wait()
# children_train
import multiprocessing
def train():
    net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in batches(): step(net, opt, x, y)
each = multiprocessing.get_context("fork").Process(target=train); each.start(); each.join(); loss = torch.zeros(1)
# evaluation_between
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1); held = DataLoader(Rows(), batch_size=48)
for _ in range(2):
    for i, (x, y) in enumerate(batches()):
        loss = step(net, opt, x, y)
        if i % 10 == 9:
            with torch.no_grad(): print(sum(net(a).sum() for a, _ in held))
# evaluation_before
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
with torch.no_grad(): print(sum(net(x).sum() for x, _ in batches()))
for x, y in batches(): loss = step(net, opt, x, y)
# closure
net = network(); opt = torch.optim.LBFGS(net.parameters(), max_iter=4); x, y = torch.randn(12, 8), torch.arange(12) % 3
def closure(): opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); return loss
for _ in range(16): loss = opt.step(closure)
# no_step
loss = torch.zeros(50)
for _ in range(150000):
    loss = loss + 2 * torch.rand(50)
# fails
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in batches(): loss = step(net, opt, x[:, :7], y)
"""
SCRIPTS = {
    name: f"{PRELUDE}\n{body}\nprint(loss, torch.rand(2))\n"
    for name, body in re.findall(r"^# (\w+)\n(.*?)(?=^# |\Z)", CORPUS, re.MULTILINE | re.DOTALL)
}
MARKS = {
    "sgd": "SGD", "two_workers": "Adam", "loader_for_each_epoch": "SGD",
    "iterable": "AdamW", "accumulation": "SGD", "copies_of_the_network": "AdamW",
    "critic": "Adam", "no_optimizer": "backward", "inference": "batch", "encoder": "call", "compiled": "SGD",
    "everyday": "SGD", "swallows": "SGD", "thread": "SGD", "evaluation_between": "SGD", "evaluation_before": "SGD",
    "closure": "LBFGS", "forked_child_ends_last": "SGD",
}  # fmt: skip
REFUSED = {
    "four_steps": "ended after 4 steps; at least 6 are needed",
    "children_train": "1 process that it starts does the training (at ",
    "no_step": "is in the loop at no_step.py:17: --step 17", "fails": "the script failed before it was measured",
}  # fmt: skip
