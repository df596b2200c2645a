"""What the log of a measuring process says of its end: pytest's complaints, and the last line before a crash."""

from __future__ import annotations

from pathlib import Path

LONGEST_TAIL = 100_000


def lines(output: Path | str) -> list[str]:
    """The lines of a log file, or of its text, that aren't empty."""
    text = output.read_text(encoding="utf-8", errors="replace") if isinstance(output, Path) else output
    return [line for line in text.splitlines() if line.strip()]


def complaint(lines: list[str]) -> str:
    """The line in which pytest says which input it can't use."""
    errors = [line for line in lines if ": error: " in line]
    errors += [line for line in lines if line.startswith("ERROR: ") and not line.startswith("ERROR: usage:")]
    text = (errors or lines[-1:] or ["pytest refused its options"])[0]
    return text.split(": error: ")[-1].removeprefix("ERROR: ").removeprefix("gpubench: ")


def uncollected(lines: list[str]) -> str:
    """Which files pytest can't collect, and what is wrong with the last of them, with its line if that is known."""
    files = [line.removeprefix("ERROR ").split(" - ")[0] for line in lines if line.startswith("ERROR ")]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E  ")]
    places = [text.rpartition(", ")[2] for text in errors if text.startswith('File "') and ", line " in text]
    name = ", ".join(files[-3:]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    where = f", {places[-1]}" if places else ""
    return (
        f"{name or 'the files'} can't be collected: {(errors or lines[-1:] or ['pytest does not say why'])[-1]}{where}"
    )


def last_line(path: Path, start: int = 0) -> str:
    """The last line after this position, or the one in which Python says which signal ended it."""
    with path.open("rb") as file:
        file.seek(max(start, path.stat().st_size - LONGEST_TAIL))
        tail = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    tail = [line for line in tail if line and not set(line) <= set(".sFExX")]
    fatal = [line for line in tail if line.startswith("Fatal Python error")]
    return (fatal[:1] or tail[-1:] or [""])[0][:300]
