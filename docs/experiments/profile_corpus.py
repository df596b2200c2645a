"""More scripts for ``gpubench profile`` than the tests have: are their steps found, and do they run as they run bare?

``python docs/experiments/profile_corpus.py own`` runs the shapes below, ``own NAME …`` some, ``examples FOLDER`` those
of a checkout of https://github.com/pytorch/examples. Prints a row for each: the step, its parts, and whether
output, exit code and files under ``--to-the-end`` are those of a bare run.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from profiling.scripts import PLAN, PRELUDE  # noqa: E402

LOOP = "for x, y in batches(): loss = step(net, opt, x, y)\n"
SHAPES = {
    "spawn_workers": """
if __name__ == "__main__":
    net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in batches(num_workers=2, multiprocessing_context="spawn", persistent_workers=True):
        loss = step(net, opt, x, y)
else: loss = None
""",
    "generator": """
def rows():
    for i in range(40): time.sleep(0.005); yield torch.rand(12, 8), torch.arange(12) % 3
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in rows(): loss = step(net, opt, x, y)
""",
    "graph": """
net = nn.Linear(8, 8); opt = torch.optim.Adam(net.parameters(), fused=True); edges = torch.randint(0, 50, (2, 200))
for _ in range(40):
    x = torch.randn(50, 8); h = torch.zeros(50, 8).index_add(0, edges[1], net(x)[edges[0]])
    h = torch.zeros_like(h).scatter_add(0, edges[1][:50, None].expand(50, 8), h)
    opt.zero_grad(); loss = h.square().mean(); loss.backward(); opt.step()
""",
    "cell_loop": """
cell = nn.GRUCell(8, 8); opt = torch.optim.Adam(cell.parameters())
for _ in range(30):
    h = torch.zeros(12, 8)
    for x in torch.randn(100, 12, 8): h = cell(x, h)
    opt.zero_grad(); loss = h.square().mean(); loss.backward(); opt.step()
""",
    "forty_layers": """
net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(40)]); opt = torch.optim.Adam(net.parameters(), foreach=True)
for _ in range(40): loss = step(net, opt, torch.randn(12, 8), torch.arange(12) % 3)
""",
    "service": """
import json
net = network().eval()
def answer(text):
    with torch.no_grad(): return json.dumps(net(torch.tensor(json.loads(text))).tolist())
for _ in range(60): loss = answer("[" + ", ".join(["0.1"] * 8) + "]")
""",
    "inductor": """
net = torch.compile(network()); opt = torch.optim.SGD(net.parameters(), 0.1)
"""
    + LOOP,
    "fullgraph": """
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)
    def forward(self, x): return self.b(self.a(x).relu())
net = Net(); net.compile(fullgraph=True, backend="aot_eager"); opt = torch.optim.SGD(net.parameters(), 0.1)
"""
    + LOOP,
    "pool_before": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, 2]))
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
"""
    + LOOP,
    "distributed": """
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
torch.distributed.init_process_group("gloo", rank=0, world_size=1)
net = nn.parallel.DistributedDataParallel(network()); opt = torch.optim.SGD(net.parameters(), 0.1)
"""
    + LOOP
    + "torch.distributed.destroy_process_group()",
    "generate": """
from transformers import GPT2Config, GPT2LMHeadModel
how = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50, eos_token_id=None, bos_token_id=None)
net = GPT2LMHeadModel(how).eval()
loss = net.generate(torch.ones(1, 3, dtype=torch.long), max_new_tokens=60, do_sample=True, pad_token_id=0)
""",
    "functional": """
net = network(); values = dict(net.named_parameters()); y = torch.arange(12) % 3
def of(values, x): return F.cross_entropy(torch.func.functional_call(net, values, (x,)), y)
for _ in range(40):
    grads, loss = torch.func.grad_and_value(of)(values, torch.randn(12, 8))
    values = {name: (value - 0.1 * grads[name]).detach() for name, value in values.items()}
""",
    "scripted": """
net = torch.jit.script(network()); opt = torch.optim.SGD(net.parameters(), 0.1)
"""
    + LOOP,
    "checkpoints": """
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for i, (x, y) in enumerate(batches()):
    loss = step(net, opt, x, y)
    if i % 10 == 9: torch.save([net.state_dict(), opt.state_dict(), torch.get_rng_state()], f"{i}.pt")
""",
    "huggingface_trainer": """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
class Texts(Dataset):
    def __len__(self): return 320
    def __getitem__(self, i): return {"input_ids": torch.arange(8) + i % 9, "labels": i % 2}
config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
net = BertForSequenceClassification(config)
how = TrainingArguments("out", per_device_train_batch_size=8, max_steps=30, report_to=[], use_cpu=True, save_steps=10,
                        logging_steps=5, disable_tqdm=True)
loss = Trainer(net, how, train_dataset=Texts()).train().training_loss
""",
    "with_accelerate": """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True); net = network()
net, opt, data = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), batches())
for _ in range(2):
    for x, y in data:
        with accelerator.accumulate(net):
            loss = F.cross_entropy(net(x), y); accelerator.backward(loss); opt.step(); opt.zero_grad()
""",
    "lightning": """
import pytorch_lightning as L
class Net(L.LightningModule):
    def __init__(self): super().__init__(); self.net = network()
    def training_step(self, batch, _): return F.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = L.Trainer(max_epochs=1, accelerator="cpu", **quiet)
net = Net(); trainer.fit(net, batches()); loss = next(net.parameters()).sum()
""",
    "two_datasets": """
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for (x, y), (u, _) in zip(batches(), batches()):
    opt.zero_grad(); loss = F.cross_entropy(net(x), y) + net(u).square().mean(); loss.backward(); opt.step()
""",
    "two_optimizers": """
net, other = network(), network(); a, b = (torch.optim.Adam(each.parameters()) for each in (net, other))
for x, y in batches(): step(net, a, x, y); loss = step(other, b, x, y)
""",
    "own_optimizer": """
class Own(torch.optim.Optimizer):
    def __init__(self, params): super().__init__(params, {})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]: p -= 0.1 * p.grad
net = network(); opt = Own(net.parameters())
"""
    + LOOP,
    "recomputed": """
from torch.utils.checkpoint import checkpoint
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in batches():
    opt.zero_grad(); loss = F.cross_entropy(checkpoint(net, x, use_reentrant=False), y); loss.backward(); opt.step()
""",
    "lstm": """
net = nn.LSTM(8, 8, batch_first=True); opt = torch.optim.Adam(net.parameters())
for _ in range(40):
    opt.zero_grad(); loss = net(torch.randn(4, 20, 8))[0].square().mean(); loss.backward(); opt.step()
""",
    "profiles_itself": """
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
    for x, y in batches(): loss = step(net, opt, x, y)
""",
    "persistent": """
net = network(); opt = torch.optim.SGD(net.parameters(), 0.1); data = batches(num_workers=2, persistent_workers=True)
for _ in range(2):
    for x, y in data: loss = step(net, opt, x, y)
""",
    "sleeps": """
log = []
def rest(name, seconds):
    begin = time.perf_counter(); time.sleep(seconds); log.append((name, time.perf_counter() - begin))
class Slow(Rows):
    def __getitems__(self, rows): rest("data", 0.005); return [self[i] for i in rows]
class Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad): rest("backward", 0.006); return grad
class Net(nn.Module):
    def __init__(self): super().__init__(); self.net = network()
    def forward(self, x): rest("forward", 0.003); return Back.apply(self.net(x))
class Lazy(torch.optim.SGD):
    def step(self, closure=None): rest("optimizer", 0.004); return super().step(closure)
net = Net(); opt = Lazy(net.parameters(), 0.1)
for x, y in DataLoader(Slow(), batch_size=8): loss = step(net, opt, x, y); rest("python", 0.002)
open("truth.json", "w").write(__import__("json").dumps(log))
""",
}


def run(words: list[str], folder: Path) -> tuple[str, int, dict[str, bytes]]:
    """Run a command in a folder; return its output, its exit code and the files there."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=900)
    files = {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.p*")) if path.is_file()
    }
    print(done.stderr[-1500:] if done.returncode not in (0, 2) else "", end="", file=sys.stderr)
    return re.sub(r"'train_\w+': '?[\d.]+'?|\d+\.\d+ ?s\b|ms/batch +[\d.]+", "", done.stdout), done.returncode, files


def compare(name: str, words: list[str], source: Path, whole: bool = True) -> None:
    """Run a script bare and watched in copies of a folder, and print a row; not bare unless ``whole``."""
    with tempfile.TemporaryDirectory() as scratch:
        bare, watched, result = (Path(scratch) / each for each in ("bare", "watched", "result.json"))
        shutil.copytree(source, bare)
        shutil.copytree(source, watched)
        command = [sys.executable, "-m", "gpubench", "profile", "--device", "cpu", "--json", str(result), *words]
        if whole:  # with all phases in few steps
            session = {"result": str(result), "words": words, "to_the_end": True, **PLAN}
            command = [sys.executable, "-P", "-m", "gpubench.profiling.script", json.dumps(session)]
        output, code, files = run(command, watched)
        profile = json.loads(result.read_text()) if result.exists() else {}
        same = "-"
        if whole:
            expected = run([sys.executable, *words], bare)
            parts = output == expected[0], code == expected[1], files == expected[2]
            same = "same" if all(parts) else f"DIFFERENT {parts}"
    step = profile.get("step") or {}
    mean = step.get("mean_s") or 1.0
    parts = " ".join(f"{part[:4]} {seconds / mean:.0%}" for part, seconds in profile.get("parts", {}).items())
    mark = f"{step.get('rank')} {step.get('mark')} ×{step.get('batches', 0):.1f}"
    print(f"{name:20} {same:9} code {code} {mark:24} {mean * 1e3:8.1f} ms  {parts}  {profile.get('lost')}", flush=True)
    if not profile or not whole:
        print("    " + "\n    ".join(output.strip().splitlines()[-22:]), flush=True)


def own(names: list[str]) -> None:
    """Compare the shapes of these names, or all."""
    for name, body in SHAPES.items():
        if not names or name in names:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / f"{name}.py").write_text(PRELUDE + body + "\nprint(loss, torch.rand(2))\n")
                compare(name, [f"{name}.py"], Path(folder))


EXAMPLES = {
    "mnist": "main.py --epochs 1 --no-accel", "imagenet": "main.py --dummy -a resnet18 -b 8 -j 2 --epochs 1",
    "dcgan": "main.py --dataset fake --niter 1", "vae": "main.py --epochs 1 --no-accel", "regression": "main.py",
    "word_language_model": "main.py --epochs 1", "reinforcement_learning": "reinforce.py",
    "mnist_rnn": "main.py --epochs 1", "mnist_hogwild": "main.py --epochs 1",
}  # fmt: skip


def examples(folder: str, names: list[str]) -> None:
    """Profile the scripts of a checkout of pytorch/examples, without a bare run."""
    for name, words in EXAMPLES.items():
        if not names or name in names:
            compare(name, words.split(), Path(folder) / name, whole=False)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:] or ["own"]
    own(rest) if kind == "own" else examples(rest[0], rest[1:])
