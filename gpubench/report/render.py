"""A report in words, shown in a terminal through rich or written as Markdown; and the folder that holds it, refused
early, filled at the end, never left."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from ..errors import UsageError
from ..format import writable
from ..runfile.reader import clean
from ..runfile.writer import replace

if TYPE_CHECKING:
    from rich.console import Console

CHARTS = "charts"
MANIFEST = ".written-by-gpubench.json"
"""Lists the tables and charts that a report wrote, with the SHA-256 of each."""
TABLES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md", "report.html")
"""Those that every report writes."""
_RUNS = "runs"
"""Key of the manifest for the results files of a report, relative to its folder."""
_OURS = re.compile(r"[a-z]+\.(csv|md|html)|charts/[A-Za-z0-9][A-Za-z0-9._-]*\.(svg|png)")
_STAR = re.compile(r"\S [A-Za-zµ/%]{1,12}\*|[×)]\*")
"""A quantity or a ratio with a star."""
_LEAST = 4
"""Width to which every column may shrink."""
_WORD = 30
"""Words up to this width come before prose."""
_JOINTS = re.compile(r"(?<=[–_/=\[:])(?=\S)|(?<=\.)(?=[^\W\d])|(?<=[^\W_]-)(?=\S)")
"""Where a word that is too long may be broken: in a range, in a name, never in a number."""
_QUANTITY = re.compile(r"[-+]?[\d.,]+ \S{1,12}")
"""A number and its unit count as one word."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are plain text: what shows them escapes them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """``charts`` are (title, file stem) for the pictures that were drawn in ``picture`` format.

    ``lead`` are sentences; ``warnings`` stand below them, before all tables. ``details`` are tables that are folded
    where that can be done. ``left_out`` is one line on what was not compared, empty where there is nothing.
    """

    tables: tuple[Table, ...]
    charts: tuple[tuple[str, str], ...] = ()
    picture: str = "svg"
    themes: Sequence[str] = ("light", "dark")
    left_out: str = ""
    lead: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    details: tuple[Table, ...] = ()


def summary_markdown(summary: Summary) -> str:
    """summary.md: what leads, the tables, the charts in light or dark as the reader's page, the details folded."""
    lines = ["# Benchmark report", ""]
    lines += [line for words in summary.lead for line in (escape(words), "")]
    lines += [line for words in summary.warnings for line in (f"> **Warning:** {escape(words)}", "")]
    for table in summary.tables:
        lines += [f"## {escape(table.title)}", "", *markdown_table(table), ""]
    if summary.charts:
        lines += ["## Charts", ""]
    for title, name in summary.charts:
        first, *dark = (f"{CHARTS}/{name}-{theme}.{summary.picture}" for theme in summary.themes)
        source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark[0]}">' if dark else ""
        lines += [f'<picture>{source}<img alt="{html.escape(title)}" src="{first}"></picture>', ""]
    for table in summary.details:
        head = f"<details><summary>{html.escape(table.title)}</summary>"
        lines += [head, "", *markdown_table(table), "", "</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def markdown_table(table: Table) -> list[str]:
    """Its lines, without the title."""
    head, *body = (f"| {' | '.join(map(escape, cells))} |" for cells in (table.columns, *table.rows))
    lines = [head, "|" + " --- |" * len(table.columns), *body]
    note = footnote(table)
    return [*lines, "", escape(note)] if note else lines


def rst_table(table: Table) -> list[str]:
    """A list-table: no cell has to be aligned, whatever its width."""
    lines = [f".. list-table:: {_rst(table.title)}", "   :header-rows: 1", ""]
    for row in (table.columns, *table.rows):
        lines += [f"   {'* -' if i == 0 else '  -'} {_rst(cell)}" for i, cell in enumerate(row)]
    note = footnote(table)
    return [*lines, "", _rst(note)] if note else lines


def _rst(cell: str) -> str:
    """Nothing in a cell is taken for markup."""
    return re.sub(r"([\\`*_|:<>@\[\]])", r"\\\1", cell.replace("\n", " "))


def html_table(table: Table) -> list[str]:
    """A table element with a caption, every name escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = ["<table>", f"<caption>{html.escape(table.title)}</caption>", f"<thead>{line(table.columns, 'th')}</thead>"]
    lines += ["<tbody>", *(line(row, "td") for row in table.rows), "</tbody>", "</table>"]
    note = footnote(table)
    return [*lines, f"<p>{html.escape(note)}</p>"] if note else lines


def escape(cell: str) -> str:
    """For Markdown: no name from a file may end a cell, be a link or a mention, or be taken for HTML."""
    cell = re.sub(r"([\\|`*_\[\]~#$])", r"\\\1", html.escape(cell, quote=False).replace("\n", " "))
    return re.sub(r"(@(?=\w)|:(?=//)|\bwww(?=\.)|\bGH(?=-\d))", r"\1<!-- -->", cell, flags=re.IGNORECASE)


def footnote(table: Table) -> str:
    """The note, and what the signs in the cells mean where it doesn't say so."""
    cells = [cell for row in table.rows for cell in row]
    words = [table.note] * bool(table.note)
    if "—" in cells and "—" not in table.note:
        words.append("— not known or not measured.")
    if any(_STAR.search(cell) for cell in cells) and "*" not in table.note:
        words.append("* noisy: may be far off.")
    return " ".join(words)


def warning_lines(warnings: Sequence[str], width: int, most: int = 3) -> list[str]:
    """Whole warnings in at most so many lines, of the first all its lines; and how many more there are."""
    lines: list[str] = []
    for shown, words in enumerate(warnings):
        wrapped = textwrap.wrap(f"WARNING: {words}", width, subsequent_indent="  ", break_long_words=False)
        if lines and len(lines) + len(wrapped) > most:
            return [*lines, f"and {len(warnings) - shown} more: see summary.md"]
        lines += wrapped
    return lines


def show_summary(summary: Summary, console: Console | None = None, verbose: bool = False) -> None:
    """The answer, then warnings, then tables; in a pipe without colours. Nothing in a cell is taken for markup."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    # rich takes COLUMNS=0 for a terminal in which nothing has room
    console = console or Console(width=shutil.get_terminal_size((120, 24)).columns)

    def plain(words: str, style: str = "") -> Text:
        return Text(writable(words, console.encoding), style)

    for words in summary.lead:
        console.print(plain(words))
    for line in warning_lines(summary.warnings, console.width):
        console.print(plain(line, "yellow"))
    for table in (*summary.tables, *(summary.details if verbose else ())):
        grid = RichTable(title=plain(table.title, "bold"), title_justify="left", caption_justify="left")
        if note := footnote(table):
            grid.caption = plain(note)
        head, *body = fit_columns([table.columns, *table.rows], console.width - 3 * len(table.columns) - 1)
        for column in head:
            grid.add_column(plain(column), overflow="fold")
        for row in body:
            grid.add_row(*map(plain, row))
        console.print(grid)


def fit_columns(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """The cells, the head included, with line breaks that make the columns together ``room`` wide.

    The widest columns shrink first: all down to their longest word (but what is longer than a third of the room gives
    way to the others' words), and only then to the longest piece of a word.
    """
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)]
    widths = [max(map(cell_len, column)) for column in columns]
    # ours: rich breaks a word that is too long anywhere, a number too, and half a number reads like a number
    kinds: tuple[Callable[[str], list[str]], ...] = (_words, _pieces, lambda _: ["-" * _LEAST])
    for parts in kinds:
        least = [max(cell_len(part) for cell in column for part in parts(cell)) for column in columns]
        if parts is _words:
            least = [min(each, max(_WORD, room // 3)) for each in least]
        while sum(widths) > room and any(width > bound for width, bound in zip(widths, least, strict=True)):
            widest = max((width, i) for i, width in enumerate(widths) if width > least[i])[1]
            widths[widest] -= 1
    return [[wrap_cell(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _words(cell: str) -> list[str]:
    return [cell] if _QUANTITY.fullmatch(cell) else cell.split() or [""]


def _pieces(cell: str) -> list[str]:
    return [piece for word in cell.split() or [""] for piece in _JOINTS.split(word)]


def wrap_cell(cell: str, width: int) -> str:
    """Broken at spaces; a longer word at its joints, and a longer piece anywhere."""
    lines = [""]
    for word in cell.split() if cell_len(cell) > width else [cell]:
        joined = f"{lines[-1]} {word}".lstrip()
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        lines += [""] * bool(lines[-1])
        for piece in _JOINTS.split(word):
            if cell_len(lines[-1] + piece) <= width:
                lines[-1] += piece
            else:
                lines[-1:] = [*lines[-1:] * bool(lines[-1]), *chop_cells(piece, width)]
    return "\n".join(lines)


def prepare_folder(folder: Path) -> None:
    """Make the folder if need be, and try it. Raises UsageError where no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        why = "it is no folder" if folder.is_file() else getattr(error, "strerror", None) or error
        raise UsageError(f"{clean(str(folder))}: can't write there: {why}") from None


def save_report(
    folder: Path, tables: Mapping[str, str], charts: Mapping[str, bytes], runs: Iterable[Path] = ()
) -> list[Path]:
    """Write everything, and remove what an earlier report left there and this one no longer has. ``runs`` are the files
    that it was made of, which the manifest names.

    Only files that are as that earlier report wrote them are removed or replaced: what others put there stays. Raises
    UsageError before anything is written.
    """
    prepare_folder(folder)
    pictures = folder / CHARTS
    if charts or pictures.exists():
        if pictures.is_symlink():
            raise UsageError(f"{clean(str(pictures))}: is a link; charts are written inside {folder} only")
        prepare_folder(pictures)
    # a file name may hold bytes that are no text
    files = {name: text.encode(errors="replace") for name, text in tables.items()}
    files |= {f"{CHARTS}/{name}": content for name, content in charts.items()}
    require_ours(folder, files)
    ours = _ours(folder)
    for name in ours.keys() - {*files, MANIFEST}:
        with suppress(OSError):
            (folder / name).unlink()
    # first, of what is replaced too: a report that is killed must not leave files that no later one would replace
    digests = {name: {hashlib.sha256(files[name]).hexdigest(), ours.get(name, "")} - {""} for name in sorted(files)}
    manifest = digests | {_RUNS: [os.path.relpath(run, folder) for run in runs]}
    replace(folder / MANIFEST, (json.dumps(manifest, indent=1, default=sorted) + "\n").encode())
    for name, content in files.items():
        replace(folder / name, content)
    return [folder / name for name in files]


def sources(folder: Path) -> list[Path]:
    """The results files that the report in ``folder`` was made of; empty where there is no report."""
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        names = json.loads((folder / MANIFEST).read_text()).get(_RUNS) or ()
        return [Path(os.path.normpath(folder / name)) for name in names if isinstance(name, str)]
    return []


def file_names(titles: Iterable[str]) -> list[str]:
    """A file name of plain letters for each title, no two alike even where case doesn't count."""
    names: list[str] = []
    for title in titles:
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", title).strip("-.")[:80] or "chart"
        taken = {name.lower() for name in names}
        names.append(next(name for i in count(1) if (name := f"{stem}-{i}" if i > 1 else stem).lower() not in taken))
    return names


def require_ours(folder: Path, names: Iterable[str]) -> None:
    """Raise UsageError if one of these files is there and wasn't written by a report."""
    ours = _ours(folder)
    for name in (*names, MANIFEST):
        path = folder / name
        if name not in ours and (path.exists() or path.is_symlink()):
            raise UsageError(
                f"{clean(str(path))}: was not written by gpubench, or changed since, and would be replaced: move it,"
                " or choose another -o"
            )


def _ours(folder: Path) -> dict[str, str]:
    """The files that are as a report wrote them, with their digests: what others put there or changed stays."""
    ours: dict[str, str] = {}
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        listed = json.loads((folder / MANIFEST).read_text()).items()
        ours |= {} if (folder / MANIFEST).is_symlink() else {MANIFEST: ""}
        for name, digests in listed:
            if _OURS.fullmatch(name) and (folder / name).is_file() and not (folder / name).is_symlink():
                digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
                ours |= {name: digest} if digest in str(digests) else {}
    return ours
