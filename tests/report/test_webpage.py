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
import records
from gpubench.report.judgement import crossover_table
from gpubench.report.labels import Names
from gpubench.report.speedup import pair, pair_or_libraries, resolve
from gpubench.report.table import results_table

from gpubench.commands.cli import main
from gpubench.commands.report import read_all
from gpubench.report.scaling import scaling_table
from gpubench.report.webpage import COLUMNS, INTERNED, page_data
from gpubench.runfile.matching import shown_name
from gpubench.runfile.schema import Case

HOSTILE = ("</script><img src=x onerror=alert(1)>", "${data}", "<!--", "=1+1", "n" * 300)


def page(tmp_path: Path, *workloads: str) -> str:
    marks = [
        records.benchmark(Case(workload, device, "float32", {"n": n}, size="n", devices=(device,)), time * n)
        for workload in workloads
        for device, time in (("cpu", 1e-6), ("cuda:0", 1e-7))
        for n in (1, 10)
    ]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU))))
    assert main(["report", str(path), "-o", str(tmp_path / "out"), "--no-charts"]) == 0
    return (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Every element and its attributes, and the text of each style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = True
        self.found.append((tag, dict(attributes)))
        self.texts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.texts and self.inside:
            self.texts[-1] += data


def test_the_policy_allows_its_own_style_and_script_and_nothing_else(tmp_path: Path) -> None:
    tags = Tags(page(tmp_path, "aa.mm"))
    policy = next(given["content"] for _, given in tags.found if given.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "*" not in policy
    texts = {(tag, given.get("type")): text for (tag, given), text in zip(tags.found, tags.texts, strict=True)}
    for directive, key in (("style-src", ("style", None)), ("script-src", ("script", None))):
        digest = base64.b64encode(hashlib.sha256(texts[key].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_nothing_is_fetched(tmp_path: Path) -> None:
    tags = Tags(page(tmp_path, "aa.mm"))
    assert not [given for _, given in tags.found if "src" in given or "style" in given]
    links = [given["href"] for tag, given in tags.found if tag in ("a", "link") and given.get("href")]
    assert links
    assert all(re.fullmatch(r"#[a-z]+|[a-z]+\.(csv|md)", link) for link in links)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text(tmp_path: Path, name: str) -> None:
    text = page(tmp_path, name)
    tags = Tags(text)
    assert [tag for tag, _ in tags.found if tag in ("img", "iframe", "object")] == []
    assert [tag for tag, _ in tags.found].count("script") == 2
    data = next(t for (_, given), t in zip(tags.found, tags.texts, strict=True) if given.get("id") == "data")
    assert any(name[:30] in entry for entry in json.loads(data)["strings"])


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    assert page(first, "aa.mm") == page(second, "aa.mm")


def made(tmp_path: Path, *files: dict[str, Any]) -> dict[str, Any]:
    paths = []
    for i, content in enumerate(files):
        paths.append(tmp_path / f"run{i}.json")
        paths[-1].write_text(json.dumps(content))
    results = results_table(read_all(paths))
    speedups = pair_or_libraries(results, pair(results, resolve(results, None))).table
    data = page_data(results, speedups, crossover_table(speedups, Names(results)), scaling_table(results), ())
    return json.loads(json.dumps(data, allow_nan=False))  # as the page reads it


def rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """As the script makes them."""
    found = [dict(zip(data["columns"], values, strict=True)) for values in data["rows"]]
    return [{k: data["strings"][v] if k in data["interned"] else v for k, v in row.items()} for row in found]


def both(
    workload: str = "aa.mm", times: tuple[float, float] = (1e-6, 1e-7), sizes=(1, 10, 100), **terms: Any
) -> list[Any]:
    return [
        records.benchmark(Case(workload, device, "float32", {"n": n, **terms}, size="n", devices=(device,)), time * n)
        for device, time in zip(("cpu", "cuda:0"), times, strict=True)
        for n in (1, 10, 100)
    ]


def run(marks: list[Any]) -> dict[str, Any]:
    return records.run_file(marks, devices=(records.CPU, records.GPU))


def test_a_row_holds_the_tables_numbers(tmp_path: Path) -> None:
    data = made(tmp_path, run(both(form="out")))
    assert tuple(data["columns"]) == COLUMNS
    assert set(data["interned"]) == set(INTERNED)
    row = next(row for row in rows(data) if row["speedup"] and row["size"] == 10)
    assert (row["workload"], row["dtype"], row["setting"], row["size_name"]) == ("aa.mm", "float32", "out", "n")
    assert row["speedup"] == pytest.approx(10)
    assert row["time_s"] == pytest.approx(1e-6)
    assert row["baseline_s"] == pytest.approx(1e-5)
    device = data["devices"][row["device"]]
    assert device["colour"] == "d0"
    assert data["devices"][0]["colour"] == "cpu"
    assert data["first"] == "aa.mm"


def test_the_headline_has_one_row_a_workload_at_its_largest_size(tmp_path: Path) -> None:
    data = made(tmp_path, run([*both("models.lenet"), *both("aa.add", (2e-6, 1e-6))]))
    (first, second) = data["headline"]["groups"]
    assert [row["name"] for group in (first, second) for row in group["rows"]] == ["LeNet", "aa.add"]  # as in pictures
    assert data["titles"] == {"models.lenet": "Running: LeNet", "aa.add": "aa.add"}
    (mark,) = first["rows"][0]["marks"]
    assert mark["text"] == "10×"
    assert "n = 100" in first["rows"][0]["setting"]
    assert "10×" in data["headline"]["markdown"]


def test_a_cpu_alone_has_no_headline_and_times(tmp_path: Path) -> None:
    marks = [mark for mark in both() if "cpu" in json.dumps(mark)]
    data = made(tmp_path, records.run_file(marks, devices=(records.CPU,)))
    assert data["headline"]["groups"] == []
    assert all(row["speedup"] is None and row["time_s"] for row in rows(data))


def test_benchmarks_of_one_size_that_declare_no_work_have_a_picture_and_no_explorer(tmp_path: Path) -> None:
    marks = [records.benchmark(Case(f"mine.w{i}", "", "", {}, devices=()), 1e-3 * (i + 1)) for i in range(3)]
    data = made(tmp_path, records.run_file(marks, devices=(records.CPU,)))
    (group,) = data["headline"]["groups"]
    assert [(row["name"], row["marks"][0]["text"]) for row in group["rows"]] == [
        *(("w2", "3.00 ms"), ("w1", "2.00 ms"), ("w0", "1.00 ms"))
    ]
    assert "| mine.w2" in data["headline"]["markdown"]
    assert data["devices"][0]["name"] == "Synthetic CPU (synthetic)"  # the machine
    assert data["devices"][0]["short"] == "Synthetic"
    assert main(["report", str(tmp_path / "run0.json"), "-o", str(tmp_path / "out"), "--no-charts"]) == 0
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert ('id="picture"' in text, 'id="explore"' in text) == (True, False)


def test_of_many_benchmarks_the_slowest_are_the_answer_and_the_picture_has_more(tmp_path: Path) -> None:
    marks = [records.benchmark(Case(f"mine.w{i}", "", "", {}, devices=()), 1e-3 * (i + 1)) for i in range(30)]
    data = made(tmp_path, records.run_file(marks, devices=(records.CPU,)))
    assert len(data["headline"]["groups"][0]["rows"]) == 30
    assert main(["report", str(tmp_path / "run0.json"), "-o", str(tmp_path / "out"), "--no-charts"]) == 0
    before_the_picture = (tmp_path / "out/report.html").read_text(encoding="utf-8").partition('id="picture"')[0]
    assert re.findall(r"mine\.w\d+", before_the_picture.partition('id="answer"')[2]) == [
        f"mine.w{i}" for i in range(29, 19, -1)
    ]
    assert "And 20 more" in before_the_picture
    assert "mine.w0 " in (tmp_path / "out/summary.md").read_text(encoding="utf-8")


def test_an_expression_stays_whole_in_the_picture_of_times(tmp_path: Path) -> None:
    names = [f"time.{text}" for text in ("np.cos(x)", "x * 1.25", "x * 1.5")]
    marks = [records.benchmark(Case(name, "cpu", "float32", {}), 1e-3) for name in names]
    (group,) = made(tmp_path, records.run_file(marks, devices=(records.CPU,)))["headline"]["groups"]
    assert {row["name"] for row in group["rows"]} == {shown_name(name) for name in names}


def test_the_page_of_a_cpu_alone_begins_with_throughput_and_names_what_a_speedup_is_over(tmp_path: Path) -> None:
    times = {"torch": 1e-6, "numpy": 3e-6}
    marks = [
        records.benchmark(Case("aa.mm", "cpu", "float32", {"n": n}, size="n", implementation=name), seconds * n)
        for name, seconds in times.items()
        for n in (1, 10)
    ]
    data = made(tmp_path, records.run_file(marks, devices=(records.CPU,)))
    assert data["headline"]["groups"] == []  # "how much faster is the GPU" isn't what these speedups say
    assert (data["quantity"], data["speedup"], data["slower"]) == ("rate", "speedup over NumPy", "NumPy faster")
    assert data["baseline"] == "NumPy"
    assert {row["baseline"] for row in rows(data) if row["speedup"]} == {"NumPy"}


def test_a_speedup_that_its_interval_denies_is_no_number(tmp_path: Path) -> None:
    sides = [Case("aa.mm", device, "float32", {"n": 9}, size="n", devices=(device,)) for device in ("cpu", "cuda:0")]
    for medians, doubt in (((1e-8, 1e-6, 1e-4), "unknown (too noisy)"), ((1e-6, 1e-6, 1e-6), "")):
        pairs = zip(sides, ((1e-5, 1e-5, 1e-5), medians), strict=True)
        marks = [records.benchmark(case, times[1], medians=times) for case, times in pairs]
        data = made(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU), processes=3))
        (row,) = [row for row in rows(data) if data["devices"][row["device"]]["colour"] == "d0"]
        assert (row["doubt"], row["speedup"]) == (doubt, None if doubt else 10)


def test_the_sentence_of_the_explorer_has_no_speedup_above_a_peak(tmp_path: Path) -> None:
    marks = [
        records.benchmark(
            Case("aa.mm", device, "float32", {"n": n}, size="n", devices=(device,)), seconds, work={"flops": flops}
        )
        for n in (8, 64)
        for device, seconds, flops in (("cpu", 1e-3, 1e3), ("cuda:0", 1e-5, 1e18))
    ]
    ceilings = {name: records.ceilings(name) for name in ("cpu", "cuda:0")}
    data = made(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU), processes=3, ceilings=ceilings))
    (words,) = data["findings"].values()
    assert "above the measured peak at n = 64" in words
    assert "×" not in words


def test_what_can_be_trusted_leads_the_numbers(tmp_path: Path) -> None:
    def sides(
        name: str, cpu: tuple[float, ...], gpu: tuple[float, ...], dtype: str = "float32", **how: Any
    ) -> list[Any]:
        cases = [Case(name, device, dtype, {"n": 9}, devices=(device,)) for device in ("cpu", "cuda:0")]
        return [records.benchmark(case, t[0], medians=t, **how) for case, t in zip(cases, (cpu, gpu), strict=True)]

    marks = [
        *sides("aa.noisy", (1e-3, 1e-3), (1e-8, 1e-4)),
        *sides("aa.flag", (1e-3,), (1e-5,), flags=("noisy",)),
        *sides("aa.half", (1e-3,), (1e-6,), "float16"),
        *sides("aa.slow", (1e-5,), (1e-6,)),
        *sides("aa.mm", (1e-4,), (1e-6,)),
    ]
    data = made(tmp_path, run(marks))
    order = [row["workload"] for row in rows(data) if data["devices"][row["device"]]["colour"] == "d0"]
    assert order == ["aa.mm", "aa.slow", "aa.flag", "aa.half", "aa.noisy"]


def test_machines_have_devices_of_their_own(tmp_path: Path) -> None:
    data = made(tmp_path, run(both()), run(both(times=(1e-6, 2e-7))))
    shown = [device for device in data["devices"] if device["colour"] != "cpu"]
    assert [(device["colour"], device["shape"]) for device in shown] == [("d0", 0), ("d1", 1)]
    assert len({device["short"] for device in data["devices"]}) >= 3
    speedups = {row["device"]: row["speedup"] for row in rows(data) if row["speedup"]}
    assert sorted(round(value) for value in speedups.values()) == [5, 10]  # each against its own CPU


def test_an_unmeasured_benchmark_is_a_row_with_its_reason(tmp_path: Path) -> None:
    content = run(both())
    case = Case("aa.big", "cuda:0", "float32", {"n": 5}, size="n")
    content["gpubench"]["unmeasured"] = [records.unmeasured(case, "oom", "needs 90 GB")]
    (row,) = [row for row in rows(made(tmp_path, content)) if row["workload"] == "aa.big"]
    assert (row["status"], row["reason"], row["time_s"]) == ("oom", "needs 90 GB", None)


def test_which_gpu_and_which_is_cheaper_stand_before_each_gpu_against_its_cpu(tmp_path: Path) -> None:
    paths = []
    for name, seconds in (("L4", 0.2), ("H200", 0.02)):
        gpu = {**records.GPU, "label": f"NVIDIA {name}"}
        marks = both("models.mlp", (1.0, seconds))
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(records.run_file(marks, devices=(records.CPU, gpu), label=name, processes=3)))
    words = ["report", *map(str, paths), "-o", str(tmp_path / "out"), "--no-charts", "--price=L4=0.8", "--price=H200=3"]
    assert main(words) == 0
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    titles = re.findall(r"<caption>([^<]*)</caption>", text)
    assert titles[0] == "GPU against GPU"
    assert titles[1].startswith("Which device is cheaper")
    assert titles[2].startswith("NVIDIA L4 against")
    assert "<h1>Which GPU is faster?</h1>" in text
    price = "Cheaper at 0.80 (L4) and 3.00 (H200) per hour: H200 on networks."
    assert f"H200 against L4: <strong>10×</strong> on networks. {price}</p>" in text
    gpus, picture, cpus = (text.index(words) for words in ("GPU against GPU<", 'id="picture"', "CPU against CPU<"))
    assert gpus < picture < cpus


def test_each_library_on_a_cpu_has_a_colour(tmp_path: Path) -> None:
    names = ("torch", "jax", "numpy")
    marks = [records.benchmark(Case("aa.mm", "cpu", "float32", {"n": 1}, implementation=name), 1e-6) for name in names]
    devices = made(tmp_path, records.run_file(marks, devices=(records.CPU,)))["devices"]
    assert [(each["short"].partition(",")[0], each["colour"], each["shape"]) for each in devices] == [
        ("Synthetic", "cpu", 0), ("JAX", "d5", 3), ("NumPy", "numpy", 2)
    ]  # fmt: skip
