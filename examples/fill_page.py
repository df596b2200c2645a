"""Numbers of a page's text from results.

    python examples/fill_page.py out page.md.in page.md

In the template ``{{mylib.attention}}`` stands for the speedup of that benchmark at its largest size, and
``{{time of mylib.attention and n=4096 and cpu}}`` for a time, by any words that ``-k`` takes. In CI,
``git diff --exit-code`` after it fails if the page was stale.
"""

import argparse
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import gpubench
from gpubench.errors import GpubenchError
from gpubench.report import words
from gpubench.report.study import Measured


def times(ratio: float) -> str:
    """``8.6×``, ``34×``, ``132×``: two figures, or all before the point."""
    return f"{ratio:.2g}×" if ratio < 99.5 else f"{ratio:.0f}×"


def largest(rows: Iterable[Measured]) -> list[Measured]:
    """Of each benchmark on each device the result at its largest size."""
    ordered = sorted(rows, key=lambda row: row.numbers)
    return list({(words.name(row.result), row.setting, row.source): row for row in ordered}.values())


def names(rows: Sequence[Measured]) -> list[str]:
    """``softmax float32, n=4096 and cpu``: words that choose each of them alone."""
    terms = [(words.benchmark(row.result), row.result.device, row.result.implementation) for row in rows]
    differ = [len({each[i] for each in terms}) > 1 for i in range(3)]
    alone = [[word for i, word in enumerate(each) if word and (i == 0 or differ[i])] for each in terms]
    shown = {words.name(row.result): row.result.workload for row in rows}
    for chosen, row in zip(alone, rows, strict=True):  # a word matches a part of a name too
        name = words.name(row.result)
        chosen += [f"not {workload}" for other, workload in shown.items() if name != other and name in other]
    return [" and ".join(each) for each in alone]


def sizes(results: str, name: str) -> str:
    """``; there are n=64, n=256``: what a benchmark has instead of the size that was asked for."""
    try:
        rows = gpubench.load(results, k=re.sub(r"[\s,]+(and )?\w+=\S+", "", name)).study.measured
    except GpubenchError:
        return ""
    return f"; there are {', '.join(dict.fromkeys(words.size(row) for row in rows))}"


def filled(template: str, results: str) -> str:
    """The template with its numbers, ``34× (33× to 36×)``: noisy ones have a star, which its last line explains, and
    simulated ones say so."""
    stars = set()

    def number(placeholder: re.Match[str]) -> str:
        of, name = placeholder[1] or "", placeholder[2]
        try:
            found = gpubench.load(results, k=name)
            study = found.study
        except GpubenchError as error:
            raise SystemExit(f"{placeholder[0]}: {error}{sizes(results, name)}") from None
        rows = largest(study.measured if of else [pair.other for pair in study.pairs])
        if len(rows) > 1:
            choices = " or ".join(f"{{{{{of}{each}}}}}" for each in names(rows))
            raise SystemExit(f"{placeholder[0]}: that is several numbers: write {choices}")
        if of and rows:
            stars.add(rows[0].quality.star)
            return f"{rows[0].time}" + " (simulated)" * bool(words.simulated([rows[0].facts]))
        ratio = found.speedup
        if ratio is None:
            raise SystemExit(f"{placeholder[0]}: nothing is compared; a time is {{{{time of {name}}}}}")
        stars.add(ratio.star)
        if math.isnan(ratio) or ratio.high > 4 * ratio.low:  # a busy machine leaves a limit, or nothing
            if not ratio.low > 1:
                raise SystemExit(f"{placeholder[0]}: too noisy to tell, measure again")
            return f"at least {times(ratio.low)}{ratio.star}{' (simulated)' * ratio.simulated}"
        ends = f"{times(ratio.low)} to {times(ratio.high)}{', simulated' * ratio.simulated}"
        return f"{times(ratio)}{ratio.star} ({ends})"

    text = re.sub(r"\{\{(time of )?(.+?)\}\}", number, template)
    return text + "\n(*: noisy, may be far off)\n" * ("*" in stars)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("template", type=Path)
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    given.page.write_text(filled(given.template.read_text(encoding="utf-8"), given.results), encoding="utf-8")


if __name__ == "__main__":
    main()
