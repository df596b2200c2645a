"""What the machine did to each process: held it up, or ran slower than at other times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from .samples import Key, Observation

DISTURBED = 0.1
"""A process of whose rounds, over all other cases, more than that share was held up had not the machine to itself."""
DRIFT = 0.05
"""Standard deviation, from run to run, of what all cases of a run share: clocks, memory, other guests of the host."""
BEYOND = 3.0
"""So many standard deviations of drift are taken for more than drift."""
LEAST_CASES = 5
"""Fewer cases have nothing in common that could be told from one of them."""

Cases = Mapping[Key, Sequence[Observation]]
_Process = tuple[int, int]


class Conditions:
    """Of both sides of a comparison, 0 for base and 1 for new, on one machine unless it was ``moved``."""

    def __init__(self, base: Cases, new: Cases, moved: bool = False) -> None:
        self._late: list[dict[_Process, list[float]]] = []
        for side in (base, new):
            late: defaultdict[_Process, list[float]] = defaultdict(list)
            for observations in side.values():
                for one in observations:
                    late[one.process].append(one.late)
            self._late.append(dict(late))
        base, new = _calm(base), _calm(new)
        keys = [key for key in new if key in base]
        self._speed: list[dict[_Process, float]] = []
        """Empty where nothing is to be taken off."""
        self.shared = 0.0
        """By how much all cases alike differ between the sides, within what a machine drifts; a logarithm."""
        self.drift = 0.0
        """Standard deviation, from run to run, of a drift that can't be told from a change of a case."""
        if moved or len(keys) < LEAST_CASES:
            self.drift = DRIFT
        else:
            speeds = _speeds(keys, (base, new))
            shared = [median(side.values()) for side in speeds]
            runs = [len({run for run, _ in side}) for side in speeds]
            # A change that all cases share and no drift explains is a change; otherwise cases must differ from others.
            if abs(shared[1] - shared[0]) <= BEYOND * DRIFT * math.sqrt(1 / runs[0] + 1 / runs[1]):
                self._speed, self.shared = speeds, shared[1] - shared[0]

    def counts(self, side: int, one: Observation) -> bool:
        """Whether that is evidence for anything."""
        return not one.smoke and not self.disturbed(side, one)

    def disturbed(self, side: int, one: Observation) -> bool:
        """By the thread canary, or by late rounds of all cases but this: one that became bimodal says nothing of the
        machine. Flags of a case don't count: work on another core raises them too, and held nothing up."""
        late = self._late[side][one.process]
        return one.contended or (len(late) > 1 and (sum(late) - one.late) / (len(late) - 1) > DISTURBED)

    def uneven(self, key: Key, base: Cases, new: Cases) -> bool:
        """Whether some process of just one side was disturbed."""
        before, after = (any(self.disturbed(i, one) for one in side[key]) for i, side in enumerate((base, new)))
        return before != after

    def speed(self, side: int, one: Observation) -> float:
        """How much slower than usual everything was in that process, a factor."""
        return math.exp(self._speed[side][one.process]) if self._speed else 1.0

    def hidden(self, observations: Sequence[Observation]) -> float:
        """Variance of the mean of their logarithms by drift, less what they show of it themselves: processes of one run
        share it and show nothing, those of a run each show it all."""
        count, runs = len(observations), len({one.process[0] for one in observations})
        return self.drift**2 / runs * ((count - runs) / (count - 1) if count > 1 else 1.0)


def _calm(side: Cases) -> Cases:
    """Without what would pass for drift: the few rounds of smoke runs, and threads that waited for each other."""
    kept = {key: [one for one in seen if not one.smoke and not one.contended] for key, seen in side.items()}
    return {key: seen for key, seen in kept.items() if seen}


def _speeds(keys: Sequence[Key], sides: tuple[Cases, Cases]) -> list[dict[_Process, float]]:
    """For each process the median over the cases of the logarithm of its time over the case's usual time."""
    over: list[defaultdict[_Process, list[float]]] = [defaultdict(list), defaultdict(list)]
    for key in keys:
        logs = [[math.log(one.median_s) for one in side[key]] for side in sides]
        usual = (median(logs[0]) + median(logs[1])) / 2
        for found, side, own in zip(over, sides, logs, strict=True):
            for one, log in zip(side[key], own, strict=True):
                found[one.process].append(log - usual)
    return [{process: median(values) for process, values in side.items()} for side in over]
