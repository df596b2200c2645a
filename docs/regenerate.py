"""All that is made from something else, and where it lies: ``tox run -e regenerate`` writes it.

The page of options, the schema and the page of the format, the table of metrics, the tutorial and its pictures (from
its notebook, which ``docs/tutorial.py`` runs), the reports of the committed results, and the README's picture.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from gpubench.commands import cli
from gpubench.commands.reading import GPUS, cards_named, estimates_of, write_report
from gpubench.estimate.picture import estimate_figure
from gpubench.estimate.printing import lines_of, screen
from gpubench.report.charts.pictures import render
from gpubench.report.charts.theme import THEMES
from gpubench.report.columns import METRICS
from gpubench.report.study import Study
from gpubench.runfile.options import OPTIONS
from gpubench.runfile.runs import read
from gpubench.runfile.schema import RunFile

ROOT = Path(__file__).resolve().parents[1]
_MADE = "Made by `tox run -e regenerate`"
_OPTIONS = f"""# Options

*{_MADE} from `gpubench/runfile/options.py` and the commands.*

## Options of measuring

`gpubench run` and `gpubench compare --interleave` take them as they stand here. In pytest each has the prefix
`--gpubench-`, and is a key of the configuration file: `gpubench_device`.
"""
_FORMAT = f"""# Format of a results file

A results file (`run.json`) is a file of pytest-benchmark with keys of gpubench added in three places:
`benchmarks[i].extra_info.gpubench` (a [Measurement](#measurement)), `machine_info.gpubench` and `gpubench`.

Values are in SI base units; what is unknown is null, never 0 and never NaN. Each benchmark has an `id` too, made of its
other keys. Keys are optional unless marked *required*; keys that are not listed are ignored. A scalar is a text, a
number or a boolean. JSON Schema: `gpubench/runfile/schema.json`.
{_MADE} from `gpubench/runfile/schema.py`.
"""


def derived() -> dict[str, bytes]:
    """By path, relative to the checkout, what it should hold."""
    texts = {
        "docs/options.md": options_page(),
        "docs/format.md": format_page(),
        "docs/reading-a-report.md": _filled("docs/reading-a-report.md", "metrics", metrics_table()),
        "gpubench/runfile/schema.json": json.dumps(json_schema(), indent=1) + "\n",
        "README.md": _filled("README.md", "sample", _sample()),
        **_tutorial(),
    }
    files = {name: text.encode() for name, text in texts.items()}
    for run in sorted((ROOT / "results").glob("*/run.json")):
        files |= _report(run)
    study = Study([read(ROOT / "results/xeon-2.80ghz/run.json")])
    estimate = estimate_figure(study, estimates_of(study, cards_named(GPUS)))
    return files | {f"docs/site/{estimate.name}-{theme}.svg": render(estimate, theme=theme) for theme in THEMES}


def _sample() -> str:
    """The README's sample: sizes at which a GPU wins and loses, with the reason."""
    study = Study([read(ROOT / "results/xeon-2-cores/run.json")], expression="matmul.square and float32")
    estimates = estimates_of(study, cards_named(["L4"]))
    return "\n".join(["```text", *screen(lines_of(study, estimates, True), estimates, True, 96), "```"])


def _report(run: Path) -> dict[str, bytes]:
    """All but the page, which is a megabyte and holds nothing more."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run.json").symlink_to(run)  # the manifest names it beside the report
        written = write_report(
            [Path(folder) / "run.json"], folder, "all" if "scaling" in run.parent.name else "default"
        )
        names = [path.relative_to(folder) for path in written.files if path.name != "report.html"]
        made = {(run.parent / name).relative_to(ROOT).as_posix(): (Path(folder) / name).read_bytes() for name in names}
    return made


def _filled(page: str, name: str, text: str) -> str:
    """A page with ``text`` between the comments that ``name`` begins and ends."""
    before, start, rest = (ROOT / page).read_text(encoding="utf-8").partition(f"<!-- {name}: ")
    comment, _, after = rest.partition("-->\n")
    end = f"<!-- end of {name} -->"
    return f"{before}{start}{comment}-->\n\n{text.strip()}\n\n{end}{after.partition(end)[2]}"


def _tutorial() -> dict[str, str]:
    specification = importlib.util.spec_from_file_location("tutorial", ROOT / "docs/tutorial.py")
    assert specification
    assert specification.loader
    tutorial: Any = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tutorial)
    notebook = tutorial.read()
    pictures = {f"docs/tutorial/{name}": svg for name, svg in tutorial.pictures(notebook).items()}
    page = _filled("docs/getting-started.md", "tutorial", tutorial.page(notebook))
    return {"docs/getting-started.md": page, **pictures}


# Options --------------------------------------------------------------------------------------------------------------


def options_page() -> str:
    """docs/options.md."""
    parts = [_OPTIONS, *(_line(f"--{option.name} {option.metavar}".strip(), option.help) for option in OPTIONS)]
    shared = {option.dest for option in OPTIONS}
    for commands in cli.COMMANDS.values():
        for name, text in commands.items():
            own = [action for action in cli.parser(name)._actions if action.dest not in {"help", *shared}]
            parts.append(f"\n## gpubench {name}\n\n{text[0].upper()}{text[1:]}.\n")
            lines = [_line(_spelled(action), str(action.help)) for action in own]
            parts += [f"{line.partition(':')[0]}: as above" if line in parts else line for line in lines]
    return "\n".join(parts).replace("%%", "%") + "\n"


def _line(name: str, meaning: str) -> str:
    return f"- `{name}`: {meaning}"


def _spelled(action: argparse.Action) -> str:
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    value = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


# The format -----------------------------------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """JSON Schema of a results file (draft 2020-12)."""
    schema = json.loads(json.dumps(msgspec.json.schema(RunFile)))  # tuples become lists
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gpubench run file", **schema}


def format_page() -> str:
    """docs/format.md: a list of keys for each type, the whole file first."""
    definitions = json_schema()["$defs"]
    page = _FORMAT
    for name in ["RunFile", *sorted(definitions.keys() - {"RunFile"})]:
        page += f"\n## {name}\n\n{inspect.cleandoc(definitions[name]['description'])}\n\n"
        keys = definitions[name]["properties"].items()
        if name == "UnmeasuredCase":
            same = [key for key, value in keys if definitions["Measurement"]["properties"].get(key) == value]
            page += f"- `{same[0]}` to `{same[-1]}`: as in a [Measurement](#measurement)\n"
            keys = [(key, value) for key, value in keys if key not in same]
        for key, value in keys:
            kind = _kind_of_value(value) + ", required" * (key in definitions[name]["required"])
            meaning = value.get("description", "")
            page += f"- `{key}`, {kind}" + f": {meaning}" * bool(meaning) + "\n"
    return page


def _kind_of_value(value: dict[str, Any]) -> str:
    """The type of a value in words, linked where it has a table."""
    if "anyOf" in value:
        kinds = map(_kind_of_value, value["anyOf"])
        text = " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
        return text.replace("string or integer or number or boolean", "scalar")
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    kind = str(value.get("type", "anything")).replace("array", "list")
    inner = value.get("items") or value.get("additionalProperties")
    return f"{kind} of {_kind_of_value(inner)}" if isinstance(inner, dict) and inner else kind


# The metrics ----------------------------------------------------------------------------------------------------------


def metrics_table() -> str:
    """What each column of numbers in results.csv means."""
    rows = [(f"`{each.name}`", each.unit or "count", each.meaning) for each in METRICS.values()]
    lines = [("column", "unit", "meaning"), ("---",) * 3, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def outdated(files: dict[str, bytes]) -> list[str]:
    """Paths that hold something else, or that a report of the committed results no longer has."""
    wrong = [
        name for name, content in files.items() if not (ROOT / name).is_file() or (ROOT / name).read_bytes() != content
    ]
    charts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results").glob("*/charts/*")}
    return [*wrong, *sorted(charts - files.keys())]


def main() -> None:
    """Write what is outdated, and name it."""
    files = derived()
    for name in outdated(files):
        print(name)
        (ROOT / name).unlink(missing_ok=True)
        if name in files:
            (ROOT / name).parent.mkdir(exist_ok=True)
            (ROOT / name).write_bytes(files[name])


if __name__ == "__main__":
    main()
