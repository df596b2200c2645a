"""The commands that the pages show are accepted, and the files that they name exist."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from gpubench.commands import cli
from gpubench.runfile.folder import LEDGER

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FLEET = sorted((ROOT / "examples/fleet").iterdir())


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
            if word.rsplit("/", 1)[-1] == "gpubench" and words[place + 1] in commands_of_gpubench():
                rest = words[place + 1 :]
                end = next((i for i, each in enumerate(rest) if each in ("&&", "|", ";", ">")), len(rest))
                commands.append(rest[:end])
    return commands


def commands_of_gpubench() -> set[str]:
    return {name for group in cli.COMMANDS.values() for name in group}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_commands_are_accepted(page, capsys) -> None:
    accepted(shown(page.read_text(encoding="utf-8")), capsys)


def accepted(commands: list[list[str]], capsys) -> None:
    for command, *words in commands:
        own = words[: words.index("--")] if "--" in words else words
        try:
            cli.parser(command).parse_args(own)
        except SystemExit:
            pytest.fail(f"{shlex.join([command, *own])}: {capsys.readouterr().err}")


def scripts_of(file: Path) -> list[str]:
    """What a file of ``examples/fleet`` has a shell do."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".sh":
        return [text]
    task = pytest.importorskip("yaml").safe_load(text)
    if task.get("kind") == "Job":
        return [script for container in task["spec"]["template"]["spec"]["containers"] for script in container["args"]]
    return [task["setup"], task["run"]]


@pytest.mark.parametrize("file", FLEET, ids=lambda file: file.name)
def test_scripts_of_a_fleet_are_shell(file) -> None:
    bash = shutil.which("bash") or pytest.skip("needs bash")
    for script in scripts_of(file):
        done = subprocess.run([bash, "-n"], input=script, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("file", [file for file in FLEET if file.name != "slurm-ranks.sh"], ids=lambda file: file.name)
def test_a_machine_of_a_fleet_begins_a_run_or_resumes_it(file, capsys) -> None:
    script = "\n".join(scripts_of(file))
    resumed, begun = commands_in(script.splitlines())
    accepted([resumed, begun], capsys)
    (folder,) = resumed[resumed.index("--resume") + 1 :]
    assert begun[begun.index("-o") + 1] == folder
    assert f"{folder}/{LEDGER}" in script.replace('"', "")


def test_options_that_a_fleet_passes_on_are_accepted(capsys) -> None:
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("docs/fleet.md", "examples/fleet/slurm.sh"))
    passed = re.findall(r"^.*sbatch .* slurm\.sh \S+([^#\n]*)", text, re.MULTILINE)
    assert len(passed) == 4
    accepted([["run", *words.split()] for words in passed], capsys)


def test_ranks_of_a_fleet_measure_benchmarks_that_exist() -> None:
    (path,) = re.findall(r"\bpytest (\S+\.py)", (ROOT / "examples/fleet/slurm-ranks.sh").read_text(encoding="utf-8"))
    assert (ROOT / path).is_file()


def test_commands_are_found_in_shell_and_workflows() -> None:
    page = (
        "```sh\ncd x && gpubench run -k a && gpubench env | head  # gpubench run\ngpubench report \\\n  r\n```\n"
        "```yaml\n      - run: >\n          venv/bin/gpubench compare a\n          b\n      - c\n```\n"
    )
    expected = [["run", "-k", "a"], ["env"], ["report", "r"], ["compare", "a", "b"]]
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
