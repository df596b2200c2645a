"""report.html as text: whole, equal for equal input, closed to the network and to hostile names; and its data: the same
numbers as the tables, and nothing that an interval denies."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import reading
import records
from reading import BOTH, SIZES, mark, sweep

from gpubench.report.answer import Answer
from gpubench.report.webpage import COLUMNS, INTERNED, page_data, webpage
from gpubench.runfile.matching import shown_name
from gpubench.runfile.schema import Case

HOSTILE = ("</script><img src=x onerror=alert(1)>", "${data}", "<!--", "=1+1", "n" * 300)
PICTURES = [("", title, b"<svg>light</svg>", b"<svg>dark</svg>") for title in ('One "a" & <b>', "Another")]


def run(marks: list[dict[str, Any]], **how: Any) -> dict[str, Any]:
    return records.run_file(marks, **({"devices": BOTH, "processes": 3} | how))


def page(folder: Path, *workloads: str) -> str:
    marks = [each for workload in workloads for each in sweep(workload)]
    return webpage(Answer(reading.study_of(folder, run(marks))), PICTURES)


def made(folder: Path, *files: dict[str, Any]) -> dict[str, Any]:
    """The data as the page reads it."""
    return json.loads(json.dumps(page_data(reading.study_of(folder, *files)), allow_nan=False))


def rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """As the script makes them, with the device's class of colour."""
    found = [dict(zip(data["columns"], values, strict=True)) for values in data["rows"]]
    named = [{k: data["strings"][v] if k in data["interned"] else v for k, v in row.items()} for row in found]
    return [row | {"colour": data["devices"][row["device"]]["colour"]} for row in named]


class Tags(HTMLParser):
    """Every element and its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_the_policy_allows_its_own_style_and_script_and_embedded_pictures(tmp_path: Path) -> None:
    text = page(tmp_path, "aa.mm")
    (policy,) = (given["content"] for _, given in Tags(text).found if given.get("http-equiv"))
    parts = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, re.DOTALL)
    style, script = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    own = f"style-src 'sha256-{style}'; script-src 'sha256-{script}'"
    assert policy == f"default-src 'none'; img-src data:; {own}; base-uri 'none'"


def test_nothing_is_fetched(tmp_path: Path) -> None:
    tags = Tags(page(tmp_path, "aa.mm"))
    assert not [given for _, given in tags.found if "style" in given or "srcset" in given]
    sources = [given["src"] or "" for _, given in tags.found if "src" in given]
    assert len(sources) == 2 * len(PICTURES)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    links = [given["href"] or "" for tag, given in tags.found if tag in ("a", "link") and given.get("href")]
    assert links
    assert all(re.fullmatch(r"#[a-z]+|[a-z]+\.(csv|md)", link) for link in links)


def test_a_picture_is_there_for_a_light_and_a_dark_page(tmp_path: Path) -> None:
    images = [given for tag, given in Tags(page(tmp_path, "aa.mm")).found if tag == "img"]
    assert [image["class"] for image in images] == ["light", "dark"] * 2
    assert [image["alt"] for image in images[::2]] == [title for _, title, *_ in PICTURES]
    decoded = [base64.b64decode((image["src"] or "").partition(",")[2]) for image in images[:2]]
    assert decoded == [b"<svg>light</svg>", b"<svg>dark</svg>"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text(tmp_path: Path, name: str) -> None:
    tags = Tags(text := page(tmp_path, name))
    assert [given.get("class") for tag, given in tags.found if tag == "img"] == ["light", "dark"] * 2
    assert not [tag for tag, _ in tags.found if tag in ("iframe", "object")]
    assert [tag for tag, _ in tags.found].count("script") == 2
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert any(name[:30] in entry for entry in data["strings"])


def test_a_section_that_would_be_empty_is_left_out(tmp_path: Path) -> None:
    """The explorer needs a size, and a picture that one was drawn."""
    sized = ["answer", "picture", "explore", "pictures", "numbers", "details"]
    assert re.findall(r'<section id="(\w+)"', page(tmp_path, "aa.mm")) == sized
    marks = [records.benchmark(Case(f"mine.w{i}", "", "", {}, devices=()), 1e-3) for i in range(3)]
    text = webpage(Answer(reading.study_of(tmp_path, run(marks, devices=(records.CPU,)))))
    assert re.findall(r'<section id="(\w+)"', text) == ["answer", "numbers", "details"]
    assert re.findall(r'<a href="#(\w+)"', text) == ["answer", "numbers", "details"]


# The data -------------------------------------------------------------------------------------------------------------


def test_a_row_holds_the_tables_numbers(tmp_path: Path) -> None:
    data = made(tmp_path, run(sweep()))
    assert tuple(data["columns"]) == COLUMNS
    assert set(data["interned"]) == set(INTERNED)
    row = next(row for row in rows(data) if row["speedup"] and row["size"] == 10)
    assert (row["workload"], row["dtype"], row["size_name"]) == ("aa.mm", "float32", "n")
    assert (row["speedup"], row["time_s"], row["baseline_s"]) == pytest.approx((10, 1e-6, 1e-5), rel=1e-4)
    assert row["speedup_low"] < 10 < row["speedup_high"]
    assert row["low_s"] < 1e-6 < row["high_s"]
    assert (row["colour"], data["devices"][0]["colour"], data["first"]) == ("accelerator0", "cpu0", "aa.mm")


def test_parameters_but_for_the_size_are_the_setting(tmp_path: Path) -> None:
    cases = [
        Case("aa.mm", "cpu", "float32", {"form": form, "n": n}, size="n") for form in ("out", "new") for n in SIZES
    ]
    found = rows(made(tmp_path, run([records.benchmark(case, 1e-3) for case in cases])))
    assert {row["setting"] for row in found} == {"out", "new"}


@pytest.mark.parametrize(("libraries", "base"), [(("torch",), ""), (("torch", "numpy"), "NumPy")])
def test_a_cpu_alone_begins_with_throughput_and_names_what_a_speedup_is_over(
    tmp_path: Path, libraries: tuple[str, ...], base: str
) -> None:
    times = dict(zip(libraries, (1e-6, 3e-6), strict=False))
    marks = [mark("aa.mm", "cpu", time * n, n, implementation=name) for name, time in times.items() for n in (1, 10)]
    data = made(tmp_path, run(marks, devices=(records.CPU,)))
    assert (data["quantity"], data["baseline"]) == ("rate", base)
    assert base in data["speedup"]
    assert {round(row["speedup"] or 0) for row in rows(data)} == ({0, 3} if base else {0})
    assert all(row["time_s"] for row in rows(data))


def test_an_expression_stays_whole(tmp_path: Path) -> None:
    names = [f"time.{text}" for text in ("np.cos(x)", "x * 1.25", "x * 1.5")]
    marks = [records.benchmark(Case(name, "cpu", "float32", {}), 1e-3) for name in names]
    found = rows(made(tmp_path, run(marks, devices=(records.CPU,))))
    assert {row["workload"] for row in found} == {shown_name(name) for name in names}


def test_a_speedup_that_its_interval_denies_is_no_number(tmp_path: Path) -> None:
    for medians, known in (((1e-8, 1e-6, 1e-4), False), ((1e-6, 1e-6, 1e-6), True)):
        marks = [mark("aa.mm", "cpu", 1e-5, spread=0), mark("aa.mm", "cuda:0", 1e-6, medians=medians)]
        (row,) = (row for row in rows(made(tmp_path, run(marks))) if row["colour"] == "accelerator0")
        assert bool(row["doubt"]) != known
        assert row["speedup"] == (10 if known else None)


def test_a_rate_above_a_peak_is_no_number_and_its_speedup_needs_no_peak(tmp_path: Path) -> None:
    marks = [
        mark("aa.mm", device, seconds, work={"flops": flops})
        for device, seconds, flops in (("cpu", 1e-3, 1e3), ("cuda:0", 1e-5, 1e18))
    ]
    ceilings = {name: records.ceilings(name) for name in ("cpu", "cuda:0")}
    gpu, cpu = sorted(rows(made(tmp_path, run(marks, ceilings=ceilings))), key=lambda row: row["colour"])
    assert (cpu["rate"], gpu["rate"]) == (pytest.approx(1e6, rel=1e-3), None)
    assert gpu["speedup"] == pytest.approx(100)


def test_a_crossover_that_the_interval_states_is_a_mark(tmp_path: Path) -> None:
    """Where the CPU's line and the GPU's floor of 10 µs meet; at the size after it the GPU is ahead."""
    marks = [mark("aa.mm", "cpu", 1e-6 * n, n) for n in SIZES] + [mark("aa.mm", "cuda:0", 1e-5, n) for n in (1, 100)]
    marks.append(mark("aa.mm", "cuda:0", 2e-5, 10))
    data = made(tmp_path, run(marks))
    ((crossing,),) = data["crossings"].values()
    assert 10 < crossing["size"] < 100
    assert data["devices"][crossing["device"]]["colour"] == "accelerator0"
    assert set(data["crossings"]) == set(data["findings"])
    assert crossing["text"] in next(iter(data["findings"].values()))


def test_machines_have_devices_of_their_own(tmp_path: Path) -> None:
    data = made(tmp_path, run(sweep()), run(sweep(times=(1e-6, 2e-7))))
    shown = [device for device in data["devices"] if not device["colour"].startswith("cpu")]
    assert [(device["colour"], device["shape"]) for device in shown] == [("accelerator0", 0), ("accelerator1", 1)]
    assert len({device["name"] for device in data["devices"]}) == 4
    speedups = {row["device"]: row["speedup"] for row in rows(data) if row["speedup"]}
    assert sorted(round(value) for value in speedups.values()) == [5, 10]  # each against its own CPU


def test_devices_of_one_colour_differ_in_shape(tmp_path: Path) -> None:
    marks = [*sweep(), mark("aa.mm", "cpu", 1e-4, implementation="numpy")]
    devices = made(tmp_path, *(run(marks) for _ in range(4)))["devices"]
    assert len({(device["colour"], device["shape"]) for device in devices}) == len(devices) == 12


def test_an_unmeasured_benchmark_is_a_row_with_its_reason(tmp_path: Path) -> None:
    case = Case("aa.big", "cuda:0", "float32", {"n": 5}, size="n")
    content = records.run_file(sweep(), [records.unmeasured(case, "oom", "needs 90 GB")], devices=BOTH)
    (row,) = (row for row in rows(made(tmp_path, content)) if row["workload"] == "aa.big")
    assert (row["status"], row["reason"], row["time_s"]) == ("oom", "needs 90 GB", None)


def test_a_limit_is_told_as_in_the_tables_and_drawn(tmp_path: Path) -> None:
    marks = [
        mark("aa.mm", device, time, n, medians=(time,), flags=flags * (n == 1))
        for n in (1, 10)
        for device, time, flags in (("cpu", 1e-4, ("contended",)), ("cuda:0", 1e-6, ()))
    ]
    found = rows(made(tmp_path, run(marks)))
    told = {row["size"]: (row["told"], row["speedup"]) for row in found if row["speedup"]}
    assert told == {1: ("≥ 77×*", pytest.approx(77, abs=0.2)), 10: ("100×", 100)}
