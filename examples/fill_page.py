"""Numbers of a page's text from results.

    python examples/fill_page.py out page.md.in page.md

In the template ``{{mylib.attention}}`` stands for the speedup of that benchmark at its largest size, by any words that
``-k`` takes. In CI, ``git diff --exit-code`` after it fails if the page was stale.
"""

import argparse
import re
from pathlib import Path

import gpubench
from gpubench.errors import GpubenchError


def times(ratio: float) -> str:
    """``8.6×``, ``34×``, ``132×``: two figures, or all before the point."""
    return f"{ratio:.2g}×" if ratio < 99.5 else f"{ratio:.0f}×"


def filled(template: str, results: str) -> str:
    """The template with its numbers, ``34× (33× to 36×)``: noisy ones have a star, which its last line explains, and
    simulated ones say so."""
    stars = set()

    def number(words: re.Match[str]) -> str:
        try:
            ratio = gpubench.load(results, k=words[1]).speedup
        except GpubenchError as error:
            raise SystemExit(f"{words[0]}: {error}") from None
        if ratio is None:
            raise SystemExit(f"{words[0]}: nothing is compared")
        stars.add(ratio.star)
        if ratio.high > 4 * ratio.low:  # a busy machine leaves a limit, or nothing
            if ratio.low <= 1:
                raise SystemExit(f"{words[0]}: too noisy to tell, measure again")
            return f"at least {times(ratio.low)}{ratio.star}{' (simulated)' * ratio.simulated}"
        ends = f"{times(ratio.low)} to {times(ratio.high)}{', simulated' * ratio.simulated}"
        return f"{times(ratio)}{ratio.star} ({ends})"

    text = re.sub(r"\{\{(.+?)\}\}", number, template)
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
