"""The documentation site, without building it: ``tox run -e docs`` does, and follows every link and reference."""

from __future__ import annotations

import re
from pathlib import Path

import gpubench

ROOT = Path(__file__).resolve().parents[1]


def test_every_page_is_in_the_contents_once():
    contents = "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL))
    lines = [line for line in contents.splitlines() if line and not line.startswith(":")]
    targets = [re.sub(r"^.*<(.+)>$", r"\1", line) for line in lines]
    named = [(ROOT / "docs" / target).resolve() for target in targets]
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.rst"), *(ROOT / "results").glob("*/summary.md")]
    pages += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    assert sorted(named) == sorted(page.with_suffix("") for page in pages if page.name != "index.md")


def test_every_public_name_is_in_the_reference():
    documented = set(re.findall(r"^\.\. auto\w+:: gpubench\.(\w+)$", (ROOT / "docs/api.rst").read_text(), re.MULTILINE))
    assert documented >= set(gpubench.__all__) - {"__version__"}


def test_what_to_cite_has_the_version():
    assert f"\nversion: {gpubench.__version__}\n" in (ROOT / "CITATION.cff").read_text()
