"""The commands that the pages show are accepted, and the files that they name exist."""

import re
import shlex
from pathlib import Path

import pytest

from gpubench.commands import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def shown(page: str) -> list[list[str]]:
    """The words of each ``gpubench COMMAND …`` in a page's blocks of shell and of workflows."""
    lines = []
    for language, block in re.findall(r"^```(sh|yaml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        joined = block.replace("\\\n", " ") if language == "sh" else re.sub(r"(run: >|\S)\n {10}(?=\S)", r"\1 ", block)
        lines += joined.splitlines()
    commands = []
    for line in lines:
        words = shlex.split(line, comments=True) if "gpubench" in line else []
        for place, word in enumerate(words[:-1]):
            if word.rsplit("/", 1)[-1] == "gpubench" and words[place + 1] in commands_of_gpubench():
                rest = words[place + 1 :]
                end = next((i for i, each in enumerate(rest) if each in ("&&", "|", ";", ">")), len(rest))
                commands.append(rest[:end])
    return commands


def commands_of_gpubench() -> set[str]:
    return {name for group in cli.COMMANDS.values() for name in group}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_commands_are_accepted(page, capsys) -> None:
    for command, *words in shown(page.read_text(encoding="utf-8")):
        own = words[: words.index("--")] if "--" in words else words
        try:
            cli.parser(command).parse_args(own)
        except SystemExit:
            pytest.fail(f"{shlex.join([command, *own])}: {capsys.readouterr().err}")


def test_commands_are_found_in_shell_and_workflows() -> None:
    page = (
        "```sh\ncd x && gpubench run -k a && gpubench env | head  # gpubench run\ngpubench report \\\n  r\n```\n"
        "```yaml\n      - run: >\n          venv/bin/gpubench compare --base a\n          --new b\n      - c\n```\n"
    )
    expected = [["run", "-k", "a"], ["env"], ["report", "r"], ["compare", "--base", "a", "--new", "b"]]
    assert shown(page) == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_source_files_exist(page) -> None:
    names = re.findall(r"`((?:[\w-]+/)+\w+\.py)`", page.read_text(encoding="utf-8"))
    names = [name for name in names if "NAME" not in name]  # a placeholder of recipes
    missing = [name for name in names if not any((root / name).is_file() for root in (ROOT, ROOT / "gpubench"))]
    assert missing == []


def test_links_into_pages_name_a_heading() -> None:
    headings = {
        page: {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in _headings(page)}
        for page in PAGES
    }
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            other = (page.parent / target).resolve() if target else page
            assert anchor in headings[other], f"{page.name}: {target}#{anchor}"


def _headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
