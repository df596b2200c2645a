"""How often is a process's first exp on several threads wrong, with and without meeting the function before? Linux.

    python docs/experiments/first_call.py --processes 2000

Forks process after process. Each calls ``torch.exp`` twice on a million elements with every core and compares:
the two differ where the math library's first call was wrong. Half of the processes call it on one element before.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch

from gpubench.devices.cpu import resolve_vector_math


def difference(x: torch.Tensor, *, resolved: bool) -> float:
    """Return the largest difference between a new process's first and second result, relative to the largest
    element."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        if resolved:
            resolve_vector_math()
        first, second = torch.exp(x), torch.exp(x)
        os.write(theirs, repr(float((first - second).abs().max() / second.max())).encode())
        os._exit(0)
    os.close(theirs)
    _, status = os.waitpid(child, 0)
    said = os.read(ours, 100)
    os.close(ours)
    if status or not said:
        raise SystemExit(f"first_call: a process ended with status {status}")
    return float(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2000)
    args = parser.parse_args()
    # No operation of torch that uses threads before the fork: the child would wait for threads that it hasn't got.
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(10**6, dtype="f4"))
    seen: dict[bool, list[float]] = {False: [], True: []}
    for number in range(args.processes):
        resolved = bool(number % 2)
        seen[resolved].append(difference(x, resolved=resolved))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print("| before the first call | processes | first answer differs | largest difference |\n|---|---:|---:|---:|")
    for resolved, name in ((False, "nothing"), (True, "one element")):
        wrong = [value for value in seen[resolved] if value]
        print(f"| {name} | {len(seen[resolved])} | {len(wrong)} | {max(wrong, default=0.0):.2g} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
