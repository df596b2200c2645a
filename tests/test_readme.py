"""What the README and the docs point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").glob("*/summary.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    text = re.sub(r"```html\n.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)  # of a reader's own page
    targets = re.findall(r"\]\(([^)#:]+)\)|(?:src|srcset)=\"([^\":]+)\"", text)
    for target in (first or second for first, second in targets):
        assert (page.parent / target).exists(), target


def test_the_scripts_and_pages_that_the_readme_names_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(docs/[\w./]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(\w+\.py)`", text):
        assert (ROOT / "docs/experiments" / name).exists(), name
