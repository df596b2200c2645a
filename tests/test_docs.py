"""The commands that pages show are accepted, the files and headings that they name exist, and each page is found."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import gpubench
from gpubench.commands import cli
from gpubench.runfile.ledger import LEDGER

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]
SUMMARIES = sorted((ROOT / "results").glob("*/summary.md"))
FLEET = sorted((ROOT / "examples/fleet").iterdir())
COMMANDS = {name for group in cli.COMMANDS.values() for name in group}


def shown(page: str) -> list[list[str]]:
    """The words of each ``gpubench COMMAND …`` in a page's blocks of shell and of workflows."""
    lines = []
    for language, block in re.findall(r"^```(sh|yaml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        joined = block.replace("\\\n", " ") if language == "sh" else re.sub(r"(run: >|\S)\n {10}(?=\S)", r"\1 ", block)
        lines += joined.splitlines()
    return commands_in(lines)


def commands_in(lines: list[str]) -> list[list[str]]:
    """The words of each ``gpubench COMMAND …`` in lines of shell."""
    commands = []
    for line in lines:
        words = shlex.split(line, comments=True) if "gpubench" in line else []
        for place, word in enumerate(words[:-1]):
            if word.rsplit("/", 1)[-1] == "gpubench" and words[place + 1] in COMMANDS:
                rest = words[place + 1 :]
                end = next((i for i, each in enumerate(rest) if each in ("&&", "|", ";", ">", ">>")), len(rest))
                commands.append(rest[:end])
    return commands


def refused(commands: list[list[str]]) -> list[str]:
    """The commands that the command line doesn't take."""
    wrong = []
    for command, *words in commands:
        try:
            cli.parser(command).parse_args(words[: words.index("--")] if "--" in words else words)
        except SystemExit:
            wrong.append(shlex.join([command, *words]))
    return wrong


def links(text: str) -> list[tuple[str, str]]:
    """Page and heading of each link or picture to something here; code on a page isn't one."""
    shown = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    pictures = [(name, "") for name in re.findall(r"(?:src|srcset)=\"([^\":]+)\"", shown)]
    return [*re.findall(r"\]\(([^)#:\s]*)#?([^):\s]*)\)", shown), *pictures]


def absent_files(page: Path, text: str) -> list[str]:
    """Links and pictures that lead nowhere, and modules of the project that don't exist."""
    modules = [name for name in re.findall(r"`((?:[\w-]+/)+\w+\.py)`", text) if "NAME" not in name]
    return [target for target, _ in links(text) if not (page.parent / target).exists()] + [
        name for name in modules if not any((root / name).is_file() for root in (ROOT, ROOT / "gpubench"))
    ]


FOREIGN = re.compile(
    r"--(benchmark|gpubench)-[\w-]*|--(adapter|check|cov|exclusive|from|gpus-per-node|import-mode|wheels)"
)
"""Options of pytest and of other programs."""


def unknown_options(page: Path, text: str) -> list[str]:
    """Options in a page's text that no command has."""
    ours = {option for name in COMMANDS for option in cli.parser(name)._option_string_actions}
    named = set(re.findall(r"`(--[a-z][\w-]+)", text)) - ours
    return sorted(option for option in named if not FOREIGN.fullmatch(option))


def headings(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


def absent_headings(page: Path, text: str) -> list[str]:
    """Links into a page that name none of its headings."""
    return [
        f"{target}#{heading}"
        for target, heading in links(text)
        if heading and heading not in headings((page.parent / target).resolve() if target else page)
    ]


CHECKS = {
    "commands": lambda page, text: refused(shown(text)),
    "files": absent_files,
    "headings": absent_headings,
    "options": unknown_options,
}


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "AGENTS.md", ROOT / "SECURITY.md", *SUMMARIES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_what_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    assert {name: wrong for name, check in CHECKS.items() if (wrong := check(page, text))} == {}


def test_every_page_is_in_the_contents_once():
    front = ROOT / "docs/getting-started.md"
    contents = "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", front.read_text(encoding="utf-8"), re.DOTALL))
    lines = [line for line in contents.splitlines() if line and not line.startswith(":") and "<self>" not in line]
    named = [(front.parent / re.sub(r"^.*<(.+)>$", r"\1", line)).resolve() for line in lines]
    pages = {*PAGES[1:], *SUMMARIES} - {front}
    assert sorted(named) == sorted(page.with_suffix("") for page in pages)


def test_every_public_name_is_in_the_reference_and_the_version_in_what_to_cite():
    reference = (ROOT / "docs/own-benchmarks.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\.\. auto\w+:: gpubench\.(\w+)$", reference, re.MULTILINE))
    assert documented >= set(gpubench.__all__) - {"__version__"}
    assert f"\nversion: {gpubench.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FLEET, ids=lambda file: file.name)
def test_a_machine_of_a_fleet_begins_a_run_or_resumes_it(file):
    script = file.read_text(encoding="utf-8")
    if file.suffix == ".sh" and (bash := shutil.which("bash")):
        done = subprocess.run([bash, "-n"], input=script, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
    if file.name == "slurm-ranks.sh":
        (path,) = re.findall(r"\bpytest (\S+\.py)", script)
        assert (ROOT / path).is_file()
        return
    resumed, begun = commands_in(script.splitlines())
    assert refused([resumed, begun]) == []
    (folder,) = resumed[resumed.index("--resume") + 1 :]
    assert begun[begun.index("-o") + 1] == folder
    assert f"{folder}/{LEDGER}" in script.replace('"', "")


def test_options_that_a_fleet_passes_on_are_accepted():
    named = ("docs/several-devices.md", "examples/fleet/slurm.sh")
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in named)
    passed = re.findall(r"^.*sbatch .* slurm\.sh \S+([^#\n]*)", text, re.MULTILINE)
    assert len(passed) == 4
    assert refused([["run", *words.split()] for words in passed]) == []
