"""What report.html draws, as JSON: rows, devices, headline, findings, rooflines, scaling and trends.

Numbers have six digits; a row is a list in the order of :data:`COLUMNS`, and texts that repeat are places in a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from ..runfile.schema import Ceilings, Run
from ..runfile.utilisation import compute_dtype
from .judgement import TOO_NOISY, crossover_text, too_noisy
from .labels import Row, flagged, grouped, setting, size_label, size_text, times_text
from .speedup import RESIDENT
from .sweep import rate_of, representatives, setting_of, size_parameter
from .table import CROSSING, LINE, records
from .trend import Series, Trend

COLUMNS = (
    "workload", "dtype", "variant", "setting", "size_name", "size", "device", "time_s", "low_s", "high_s", "rate",
    "rate_unit", "utilisation", "speedup", "speedup_low", "speedup_high", "copies", "break_even_calls", "baseline",
    "baseline_s", "status", "flags", "reason",
)  # fmt: skip
"""Of a row; ``device`` is a place in the list of devices."""
INTERNED = (
    "workload",
    "dtype",
    "variant",
    "setting",
    "size_name",
    "rate_unit",
    "baseline",
    "status",
    "flags",
    "reason",
)
DIGITS = 6
COLOURS = ("d0", "d1", "d2", "d3", "d4", "d5")
"""Classes of the style sheet, for accelerators; CPUs are grey, NumPy has a colour of its own."""
SHAPES = 4
MOST_NAMED = 9
"""Points of a roofline that are named."""
MOST_TRENDS = 12
_MAKER = re.compile(r"^(NVIDIA|AMD|Intel(\(R\))?|Apple)\s+")

_Source = tuple[str, str, str]
"""Run, device and implementation."""


@dataclass(frozen=True, slots=True)
class PageDevice:
    """A device as the page names it: ``colour`` is a class of the style sheet, ``shape`` the form of its marks."""

    name: str
    short: str
    machine: str
    colour: str
    shape: int


def page_data(
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    crossovers: pd.DataFrame,
    scaled: pd.DataFrame,
    trends: Sequence[Trend],
) -> dict[str, Any]:
    """The tables of a report, as the page's script reads them. All of it is fit for JSON."""
    measured, compared = records(results), _against_own(records(speedups))
    devices = page_devices(measured)
    places = {source: place for place, source in enumerate(devices)}
    sizes = {name: size_parameter(rows) for name, rows in grouped(measured, lambda row: row["workload"]).items()}
    pairs = {id(row["_result"]): row for row in compared}
    texts: dict[Any, int] = {}
    rows = []
    for row in measured:
        cells = _cells(row, pairs.get(id(row["_result"]), {}), sizes[row["workload"]]) | {
            "device": places[page_source(row)]
        }
        rows.append(
            [
                texts.setdefault(cells[name] or "", len(texts)) if name in INTERNED else _short(cells[name])
                for name in COLUMNS
            ]
        )
    crossings = [row for row in records(crossovers) if row["run"] == row["baseline_run"]]
    return {
        "columns": COLUMNS,
        "interned": INTERNED,
        "strings": list(texts),
        "rows": rows,
        "devices": [asdict(device) for device in devices.values()],
        "baseline": "the CPU of the same machine",
        "first": _first(compared or measured),
        "findings": _findings(crossings, devices),
        "crossings": _marks(crossings, places),
        "headline": _headline(compared, places),
        "rooflines": _rooflines(measured, devices),
        "bars": _bars(records(scaled), devices),
        "trends": [_trend(trend, series) for trend in trends for series in trend.series][:MOST_TRENDS],
    }


def page_source(row: Row) -> _Source:
    """What makes a line of the explorer and a mark of the headline."""
    return row["run"], row["device"], row["implementation"] or ""


def page_devices(rows: Sequence[Row]) -> dict[_Source, PageDevice]:
    """Devices that measured something come first; only those have a colour."""
    firsts = {page_source(row): row for row in reversed(rows)}
    measured = {page_source(row) for row in rows if row["_result"].times}
    sources = sorted(dict.fromkeys(map(page_source, rows)), key=lambda source: source not in measured)  # stable
    several = len({source[0] for source in sources}) > 1
    devices: dict[_Source, PageDevice] = {}
    accelerators = 0
    for source in sources:
        row = firsts[source]
        device = row["_run"].machine.device(row["device"])
        numpy = "NumPy" if row["implementation"] == "numpy" else ""
        name = " ".join(filter(None, (device.label or device.name, numpy)))
        short = _MAKER.sub("", name) if device.accelerator else " ".join(filter(None, ("CPU", numpy)))
        if several and not device.accelerator:
            short = f"{short}, {row['run']}"
        coloured = device.accelerator and source in measured
        colour = COLOURS[accelerators % len(COLOURS)] if coloured else "numpy" if numpy else "cpu"
        shape = accelerators % SHAPES if coloured else 2 * bool(numpy)
        devices[source] = PageDevice(name, short, row["machine"], colour, shape)
        accelerators += coloured
    return devices


def _against_own(rows: Iterable[Row]) -> list[Row]:
    """Pairs within a machine: what the explorer and the headline show."""
    return [row for row in rows if row["run"] == row["baseline_run"]]


def _cells(row: Row, pair: Mapping[str, Any], size_name: str | None) -> dict[str, Any]:
    result = row["_result"]
    params = dict(result.case.params)
    size = params.pop(size_name, None) if size_name else None
    rate = rate_of(row) if result.times else None
    rates = rate.measure(row) if rate else None
    return {
        "workload": row["workload"],
        "dtype": row["dtype"],
        "variant": row["variant"],
        "setting": _setting(row, params),
        "size_name": size_name if size is not None else None,
        "size": size,
        "time_s": result.times.median_s if result.times else None,
        "low_s": row["low_s"],
        "high_s": row["high_s"],
        "rate": rates[0] if rates else None,
        "rate_unit": rate.unit if rate and rates else None,
        "utilisation": row["utilisation"],
        "speedup": pair.get("speedup"),
        "speedup_low": pair.get("low"),
        "speedup_high": pair.get("high"),
        "copies": pair.get("one_shot_speedup"),
        "break_even_calls": pair.get("break_even_calls"),
        "baseline": _baseline(pair),
        "baseline_s": pair.get("baseline_s"),
        "status": row["status"],
        "flags": "; ".join(f"{flag.name}: {flag.seen}" for flag in result.flags),
        "reason": row["reason"],
    }


def _setting(row: Row, params: Mapping[str, Any]) -> str:
    """What tells a line of the explorer from the others of its workload, dtype and variant."""
    words = [setting(name, value) for name, value in params.items()]
    words += [row[name] for name, usual in (("regime", "resident"), ("cache", "hot")) if row[name] not in (None, usual)]
    return ", ".join(words)


def _baseline(pair: Mapping[str, Any]) -> str:
    if not pair:
        return ""
    return "NumPy" if pair["baseline_implementation"] != pair["implementation"] else "the CPU"


def _short(value: Any) -> Any:
    """A number with six digits, and none that JSON doesn't have."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None if value == "" else value
    number = float(f"{value:.{DIGITS}g}")
    if number != number or abs(number) == float("inf"):
        return None
    return int(number) if number.is_integer() else number


def _first(rows: Sequence[Row]) -> str:
    """The workload that the explorer opens with: square matrix products, else the one of most benchmarks."""
    counts = {name: len(members) for name, members in grouped(rows, lambda row: row["workload"]).items()}
    return "matmul.square" if "matmul.square" in counts else max(counts, key=lambda name: counts[name], default="")


def _key(row: Row, size_name: str) -> str:
    """Of a line of the explorer, as the script makes it from its choices."""
    params = {name: value for name, value in row["_result"].case.params.items() if name != size_name}
    return "|".join((row["workload"], row["dtype"] or "", row["variant"] or "", _setting(row, params)))


def _findings(crossings: Sequence[Row], devices: Mapping[_Source, PageDevice]) -> dict[str, str]:
    """By line of the explorer: ``H200: 130× at n = 8192; faster from n ≈ 72, with copies from n ≈ 280.``"""
    findings: dict[str, list[str]] = {}
    lines = grouped(crossings, lambda row: (_key(row[LINE].row, row["size_parameter"]), page_source(row)))
    for (key, source), rows in lines.items():
        words = []
        for row in sorted(rows, key=lambda each: each["regime"] != RESIDENT):
            copies = "" if row["regime"] == RESIDENT else "with copies "
            last, name = row[LINE].points[-1], row["size_parameter"]
            value = TOO_NOISY if too_noisy(last.low, last.high) else times_text(last.y)
            start = crossover_text(row[CROSSING], row[LINE], name)
            words.append(f"{copies}{value} at {size_label(name)} = {size_text(last.x, name)}, faster from: {start}")
        findings.setdefault(key, []).append(f"{devices[source].short}: {'; '.join(words)}.")
    return {key: " ".join(parts) for key, parts in findings.items()}


def _marks(crossings: Sequence[Row], places: Mapping[_Source, int]) -> dict[str, list[dict[str, Any]]]:
    """Crossovers that the interval states as a fact, by line of the explorer."""
    marks: dict[str, list[dict[str, Any]]] = {}
    for row in crossings:
        text = crossover_text(row[CROSSING], row[LINE], row["size_parameter"])
        if "≈" in text and row["crossover"]:
            mark = {"device": places[page_source(row)], "size": _short(row["crossover"]), "text": text}
            marks.setdefault(_key(row[LINE].row, row["size_parameter"]), []).append(mark)
    return marks


def _headline(compared: Sequence[Row], places: Mapping[_Source, int]) -> dict[str, Any]:
    """Named rows in groups, a mark a device: each workload at its largest size in one named setting."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    by_source = grouped([row for row in compared if row["implementation"] != "numpy"], page_source)
    for source, rows in by_source.items():
        for kind, chosen in representatives(rows).items():
            for row in chosen:
                name = row["workload"].partition(".")[2].replace("_", " ") or row["workload"]
                entry = {"name": name, "setting": _headline_setting(row), "marks": []}
                known = groups.setdefault(kind, {}).setdefault(row["workload"], entry)
                if not too_noisy(row["low"], row["high"]):
                    copies = _short(row["one_shot_speedup"])
                    mark = {"device": places[source], "speedup": _short(row["speedup"]), "copies": copies}
                    known["marks"].append(mark | {"text": times_text(row["speedup"]) + "*" * flagged(row)})
    shown = [
        {"name": kind, "rows": [entry for entry in entries.values() if entry["marks"]]}
        for kind, entries in groups.items()
    ]
    shown = [group for group in shown if group["rows"]]
    return {
        "title": "How much faster is the GPU than the CPU of the same machine?",
        "subtitle": "Each workload at the largest size measured, log scale. * noisy",
        "groups": shown,
        "markdown": _markdown(shown, list(places)),
    }


def _headline_setting(row: Row) -> str:
    """``float32, out, n = 10⁷``: as in the answer, with sizes for people."""
    words = setting_of(row).split(", ")
    sizes = {
        setting(name, value): f"{name} = {size_text(value, name)}"
        for name, value in row["_result"].case.params.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    }
    return ", ".join(sizes.get(word, word) for word in words)


def _markdown(groups: Sequence[Mapping[str, Any]], sources: Sequence[_Source]) -> str:
    """The headline as a table: a row a workload and device."""
    lines = ["| work | setting | device | speedup | with copies |", "|---|---|---|---:|---:|"]
    for group in groups:
        for row in group["rows"]:
            for mark in row["marks"]:
                run, device, _ = sources[mark["device"]]
                copies = times_text(mark["copies"]) if mark["copies"] else "–"
                cells = (f"{group['name']}: {row['name']}", row["setting"], f"{device} of {run}", mark["text"], copies)
                lines.append(
                    "| " + " | ".join(re.sub(r"([|\\`*_<>\[\]])", r"\\\1", str(cell)) for cell in cells) + " |"
                )
    return "\n".join(lines) + "\n"


def _rooflines(rows: Sequence[Row], devices: Mapping[_Source, PageDevice]) -> list[dict[str, Any]]:
    """A picture a device with measured peaks; of each workload the best point, the best of all named."""
    charts = []
    for source, members in grouped([row for row in rows if row["_result"].times], page_source).items():
        run: Run = members[0]["_run"]
        ceilings = run.ceilings.get(source[1])
        points = [point for row in members if (point := _intensity(row))]
        if not ceilings or not ceilings.throughput or len(points) < 3:
            continue
        best = {
            name: max(found, key=lambda point: point["rate"])
            for name, found in grouped(points, lambda p: p["workload"]).items()
        }
        named = sorted(best.values(), key=lambda point: -(point["share"] or 0))[:MOST_NAMED]
        for point in named:
            point["name"] = (
                f"{point['workload']} {point['share']:.0%}" if (point["share"] or 2) <= 1 else point["workload"]
            )
        charts.append(_roof(ceilings, devices[source]) | {"points": points})
    return charts


def _intensity(row: Row) -> dict[str, Any] | None:
    work, times = row["_result"].work, row["_result"].times
    if not work.flops or not work.bytes:
        return None
    case = row["_result"].case
    title = f"{row['workload']} {compute_dtype(case.dtype, case.variant)}, {_setting(row, case.params)}"
    return {
        "workload": row["workload"],
        "title": title,
        "intensity": _short(work.flops / work.bytes),
        "rate": _short(work.flops / times.median_s),
        "share": _short(row["utilisation"]),
        "name": "",
    }


def _roof(ceilings: Ceilings, device: PageDevice) -> dict[str, Any]:
    memory = [entry.byte_per_s for entry in ceilings.bandwidth if entry.level == "memory"]
    bandwidth = max(memory or [entry.byte_per_s for entry in ceilings.bandwidth], default=None)
    peaks = [{"name": dtype, "rate": _short(rate)} for dtype, rate in ceilings.throughput.items()]
    ridge = max(peak["rate"] for peak in peaks) / bandwidth if bandwidth else None
    return {
        "title": f"Roofline of {device.short}",
        "colour": device.colour,
        "peaks": peaks,
        "bandwidth": _short(bandwidth),
        "ridge": _short(ridge),
    }


def _bars(rows: Sequence[Row], devices: Mapping[_Source, PageDevice]) -> list[dict[str, Any]]:
    """Speedup over one device for each job on several, the ideal as a tick."""
    charts = []
    wanted = [row for row in rows if row["scaling"] is not None and row["devices"] > 1]
    for workload, members in grouped(wanted, lambda row: row["workload"]).items():
        bars = [
            {
                "name": f"{row['method']}, {row['devices']} devices" + (f", {row['mode']}" if row["mode"] else ""),
                "value": _short(row["scaling"]),
                "high": _short(row["scaling_high"]),
                "ideal": _short(row["ideal_speedup"] or row["devices"]),
                "text": times_text(row["scaling"]),
                "colour": next(
                    (shown.colour for source, shown in devices.items() if source[:2] == (row["run"], row["device"])),
                    "cpu",
                ),
            }
            for row in members
        ]
        subtitle = "Speedup over one device; the tick is the ideal"
        charts.append({"title": workload, "subtitle": subtitle, "bars": bars})
    return charts


def _trend(trend: Trend, series: Series) -> dict[str, Any]:
    starts, ends = (0, *series.changes), (*series.changes, len(series.times))
    return {
        "title": f"{trend.workload}: {series.name}",
        "subtitle": f"{trend.machine}; lower is better",
        "times": [_short(time) for time in series.times],
        "labels": list(series.dates),
        "levels": [[a, b - 1, _short(level)] for a, b, level in zip(starts, ends, series.levels, strict=True)],
    }
