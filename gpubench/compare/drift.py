"""What the machine did to each process: delayed its rounds, or ran slower than at other times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from .samples import CaseKey, Observation

DISTURBED = 0.1
"""A process counts as disturbed when more than this share of its rounds in all other cases was delayed."""
RUN_DRIFT = 0.05
"""Standard deviation from run to run of what all cases of a run share: clocks, memory, other guests of the host."""
MOST_DRIFT = 3.0
"""More than this many standard deviations is a change and not drift."""
LEAST_CASES = 5
"""With fewer cases, a change of one can't be told from drift."""

Cases = Mapping[CaseKey, Sequence[Observation]]
_Process = tuple[int, int]


class Conditions:
    """Of both sides of a comparison, 0 for base and 1 for new; ``moved`` means that they are different machines."""

    def __init__(self, base: Cases, new: Cases, moved: bool = False) -> None:
        self._late = [_late(side) for side in (base, new)]
        base, new = _calm(base), _calm(new)
        keys = [key for key in new if key in base]
        self._speed: list[dict[_Process, float]] = []
        """Logarithms by side and process; empty where no drift is subtracted."""
        self.shared = 0.0
        """Logarithm of the drift that all cases share between the sides."""
        self.drift = 0.0
        """Standard deviation from run to run of a drift that can't be told from a change of a case."""
        if moved or len(keys) < LEAST_CASES:
            self.drift = RUN_DRIFT
            return
        speeds = _speeds(keys, (base, new))
        shared = [median(side.values()) for side in speeds]
        runs = [len({run for run, _ in side}) for side in speeds]
        # A change that all cases share is a change only if it exceeds any drift; otherwise it is subtracted.
        if abs(shared[1] - shared[0]) <= MOST_DRIFT * RUN_DRIFT * math.sqrt(1 / runs[0] + 1 / runs[1]):
            self._speed, self.shared = speeds, shared[1] - shared[0]

    def counts(self, side: int, observation: Observation) -> bool:
        """Whether the observation is evidence."""
        return not observation.smoke and not self.disturbed(side, observation)

    def disturbed(self, side: int, observation: Observation) -> bool:
        """By the thread canary, or by delayed rounds of all other cases: a case that became bimodal doesn't show a
        busy machine. A case's flags don't count: work on another core raises them without delaying anything."""
        late = self._late[side][observation.process]
        others = (sum(late) - observation.late) / (len(late) - 1) if len(late) > 1 else 0.0
        return observation.contended or others > DISTURBED

    def uneven(self, key: CaseKey, base: Cases, new: Cases) -> bool:
        """Whether processes of just one side were disturbed."""
        before, after = (any(self.disturbed(i, each) for each in side[key]) for i, side in enumerate((base, new)))
        return before != after

    def speed(self, side: int, observation: Observation) -> float:
        """The factor by which that process was slower than usual in all cases."""
        return math.exp(self._speed[side][observation.process]) if self._speed else 1.0

    def hidden_variance(self, observations: Sequence[Observation]) -> float:
        """Variance of the mean of their logarithms by the drift that they don't show: a run's processes share it."""
        count, runs = len(observations), len({each.process[0] for each in observations})
        return self.drift**2 / runs * ((count - runs) / (count - 1) if count > 1 else 1.0)


def _late(side: Cases) -> dict[_Process, list[float]]:
    late: defaultdict[_Process, list[float]] = defaultdict(list)
    for observations in side.values():
        for each in observations:
            late[each.process].append(each.late)
    return late


def _calm(side: Cases) -> Cases:
    """Without smoke runs, whose rounds are few, and without processes whose threads waited for each other."""
    kept = {key: [each for each in cases if not each.smoke and not each.contended] for key, cases in side.items()}
    return {key: cases for key, cases in kept.items() if cases}


def _speeds(keys: Sequence[CaseKey], sides: tuple[Cases, Cases]) -> list[dict[_Process, float]]:
    """For each process the median over the cases of the logarithm of its time over the case's usual time."""
    excess: list[defaultdict[_Process, list[float]]] = [defaultdict(list), defaultdict(list)]
    for key in keys:
        logs = [[math.log(each.median_s) for each in side[key]] for side in sides]
        usual = (median(logs[0]) + median(logs[1])) / 2
        for processes, side, times in zip(excess, sides, logs, strict=True):
            for each, log in zip(side[key], times, strict=True):
                processes[each.process].append(log - usual)
    return [{process: median(values) for process, values in side.items()} for side in excess]
