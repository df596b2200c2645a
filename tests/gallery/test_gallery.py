"""The site of a gallery: what enters it, numbers with their interval and date, and nothing that acts or is fetched."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from comparing import BOTH, mark, run
from msgspec.structs import replace

from gpubench.commands.cli import main
from gpubench.gallery.machines import machines
from gpubench.gallery.site import site
from gpubench.report import words
from gpubench.report.pairs import comparable, compare
from gpubench.report.rows import Measured, measured, rows_of
from gpubench.runfile.kinds import KINDS
from gpubench.runfile.schema import CpuFacts, Run

HOSTILE = '</script><img src=x onerror=alert(1)>"${body}'
GPU = {"name": "cuda:0", "kind": "cuda", "label": "NVIDIA H200"}
CPU = {"name": "cpu", "kind": "cpu", "label": "AMD EPYC 9654"}


def made(folder: Path, name: str = "a", marks: list[dict[str, Any]] | None = None, **how: Any) -> Run:
    """A run of a GPU and a CPU in a file of its own."""
    marks = marks or [
        mark(workload, device, seconds)
        for workload in ("models.mlp", "matmul.square")
        for device, seconds in (("cpu", 1e-3), ("cuda:0", 1e-5))
    ]
    (folder / name).mkdir(parents=True, exist_ok=True)
    return run(folder / name, marks, **({"devices": (CPU, GPU), "label": "AMD EPYC 9654 · NVIDIA H200"} | how))


def sited(folder: Path, *runs: Run) -> dict[str, str]:
    files = dict(site(machines(runs, folder), "1.0", pictures=False))
    return {name: content for name, content in files.items() if isinstance(content, str)}


class Page(HTMLParser):
    """The text of each cell, heading and option; each element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.texts = [text.strip() for text in self.texts]

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("td", "th", "option"):
            self.texts.append("")

    def handle_data(self, data):
        if self.texts:
            self.texts[-1] += data


def data_of(files: dict[str, str], ident: str) -> dict[str, Any]:
    """What a machine's script hands over."""
    found = re.fullmatch(rf'machine\("{ident}", (.*)\);\n', files[f"machines/{ident}.js"])
    assert found
    return json.loads(found[1])


def test_machines_of_one_name_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    def called(*facts: dict[str, Any]) -> list[str]:
        runs = [made(tmp_path, f"machine{number}") for number in range(len(facts))]
        runs = [
            replace(each, machine=replace(each.machine, cpu=CpuFacts(**own)))
            for each, own in zip(runs, facts, strict=True)
        ]
        options = [text for text in Page(sited(tmp_path, *runs)["compare.html"]).texts if "H200" in text]
        return [text.partition("threads")[2].rpartition(", ")[0] for text in options[: len(facts)]]

    slow, fast = {"model": "EPYC @ 2.80GHz", "cores": 4}, {"model": "EPYC @ 3.10GHz", "cores": 8}
    assert called(slow, fast) == [", 2.80GHz", ", 3.10GHz"]
    assert called(slow, slow | {"instructions": ("amx_bf16",)}) == ["", ", AMX"]
    assert called(slow, slow | {"cores": 8}) == [", 4 cores", ", 8 cores"]
    assert called(slow, slow) == [" (machine0)", " (machine1)"]


def test_the_index_links_home_where_it_is_part_of_a_site(tmp_path: Path) -> None:
    shown = machines([made(tmp_path)], tmp_path)
    files = dict(site(shown, "1.0", pictures=False, home="../docs/index.html"))
    assert ("a", {"href": "../docs/index.html"}) in Page(str(files["index.html"])).tags
    assert "../docs" not in sited(tmp_path, made(tmp_path))["index.html"]


def test_a_line_holds_ten_benchmarks_of_the_gpu_with_interval_and_date(tmp_path: Path) -> None:
    one = made(tmp_path)
    index = Page(sited(tmp_path, one)["index.html"])
    rows = [row for row in measured(rows_of([one])) if row.on_accelerator]
    shown = " ".join(index.texts)
    assert len(rows) == 2
    for row in rows:
        assert words.benchmark(row.result) in index.texts
        assert f"{words.time(row)}{words.precision(row)}" in index.texts
    assert words.precision(rows[0]).startswith("±")
    assert "2026-01-31" in index.texts
    assert "H200 · EPYC 9654, 2 threads" in shown
    assert f"100× on {KINDS['matmul'].words}" in shown
    assert ("a", {"href": "machines/a.html"}) in index.tags


def test_a_column_is_a_setting_that_nearly_all_machines_have(tmp_path: Path) -> None:
    """Not the one odd setting that all of them happen to have, nor a larger size of a single machine."""
    runs = []
    for i in range(6):
        sizes = [64, *([256] if i else []), *([1024] if i == 1 else [])]
        marks = [mark("matmul.square", "cuda:0", 1e-5, n) for n in sizes]
        runs.append(made(tmp_path, f"m{i}", marks, started=f"2026-02-0{i + 1}T00:00:00+00:00"))
    heads = Page(sited(tmp_path, *runs)["index.html"]).texts
    assert [head for head in heads if "n=" in head] == ["matmul.square float32, n=256"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"devices": (CPU, {**GPU, "simulated": True})}, "from a model"),
        ({"devices": (CPU, {**GPU, "label": "NVIDIA H200 (modelled)"})}, "from a model"),
        ({"label": "A simulated server"}, "from a model"),
        ({"preset": "smoke"}, "smoke run"),
    ],
)
def test_what_was_not_measured_never_enters(tmp_path: Path, capsys, how: dict[str, Any], why: str) -> None:
    made(tmp_path / "in", "bad", **how)
    assert main(["gallery", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 2
    assert why in capsys.readouterr().err
    made(tmp_path / "in", "good")
    assert main(["gallery", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert why in capsys.readouterr().err
    assert {path.stem for path in (tmp_path / "out/machines").glob("*.js")} == {"good"}


def test_a_run_and_its_card_are_one_machine(tmp_path: Path, capsys) -> None:
    first = made(tmp_path / "in", "a")
    card = json.loads(first.path.read_text())
    card["machine_info"]["gpubench"]["label"] = "A card has no name that a person gave"
    for each in card["benchmarks"]:
        each["stats"].pop("data")
        for process in each["extra_info"]["gpubench"]["processes"]:
            process["kept"] = 0
    (tmp_path / "in/card.json").write_text(json.dumps(card))
    assert main(["gallery", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert "the same run as" in capsys.readouterr().err
    assert len(list((tmp_path / "out/machines").glob("*.html"))) == 1


def test_maintainers_are_told_from_the_community_where_there_are_any(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path, "maintainers/a"), made(tmp_path, "b", started="2026-03-01T00:00:00+00:00")
    files = sited(tmp_path, ours, theirs)
    lines = {given["id"]: given["data-by"] for tag, given in Page(files["index.html"]).tags if tag == "tbody"}
    assert lines == {"maintainers-a": "maintainers", "b": "community"}
    assert "by the community" in files["machines/b.html"]
    assert data_of(files, "maintainers-a")["facts"]["measured by"] == "maintainers"
    alone = sited(tmp_path, theirs)
    assert not re.search(r"maintainers|community", "".join(alone.values()).partition("<script>")[0])


def test_a_hostile_name_is_text_everywhere(tmp_path: Path) -> None:
    marks = [mark("aa.mm", device, 1e-3, title=HOSTILE) for device in ("cpu", "cuda:0")]
    files = sited(tmp_path, made(tmp_path, "a", marks, label=HOSTILE, devices=(CPU, {**GPU, "label": f"<b>{HOSTILE}"})))
    for name in ("index.html", "compare.html", "machines/a.html"):
        tags = [tag for tag, _ in Page(files[name]).tags]
        assert "img" not in tags
        assert tags.count("script") == (2 if name.startswith("machines/") else 1)
    assert HOSTILE in " ".join(Page(files["index.html"]).texts)
    assert data_of(files, "a")["label"] == HOSTILE


def test_the_site_fetches_nothing_but_its_own_files(tmp_path: Path) -> None:
    files = sited(tmp_path, made(tmp_path, "a"), made(tmp_path, "b", started="2026-03-01T00:00:00+00:00"))
    known = {"index.html", "compare.html", *files}
    for name, text in files.items():
        for tag, given in Page(text).tags if name.endswith(".html") else []:
            for link in filter(None, (given.get("href"), given.get("src"))):
                target = (Path(name).parent / link.partition("#")[0]).as_posix().replace("machines/../", "")
                assert link.startswith("#") or target in known, (name, tag, link)
        if name.endswith(".html"):
            policy = next(given["content"] or "" for _, given in Page(text).tags if "http-equiv" in given)
            assert policy.startswith("default-src 'none'")
            assert not re.search(r"https?:|\*|unsafe", policy)


def test_a_second_gallery_removes_machines_that_have_gone(tmp_path: Path) -> None:
    first, out = made(tmp_path / "in", "a"), tmp_path / "out"
    made(tmp_path / "in", "b", started="2026-03-01T00:00:00+00:00")
    assert main(["gallery", str(tmp_path / "in"), "-o", str(out)]) == 0
    assert (out / "machines/a-light.svg").exists() == (out / "machines/a-dark.svg").exists()
    first.path.unlink()
    assert main(["gallery", str(tmp_path / "in"), "-o", str(out)]) == 0
    assert {path.stem for path in (out / "machines").glob("*.html")} == {"b"}


def one_row(folder: Path, name: str, device: str = "cuda:0", **how: Any) -> Measured:
    terms = {each: how.pop(each) for each in ("seed", "tf32") if each in how}
    marks = [mark("matmul.square", device, 1e-5, **{"dtype": "float32", **how})]
    (row,) = measured(rows_of([made(folder, name, marks, devices=BOTH, **terms)]))
    return row


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({}, {"n": 65}),
        ({}, {"dtype": "float64"}),
        ({}, {"variant": "compile"}),
        ({}, {"seed": 1}),
        ({}, {"tf32": True}),
        ({"tf32": True}, {"tf32": True}),
        ({"dtype": "float64"}, {"dtype": "float64", "tf32": True}),
        ({"precision": {"deterministic": False}}, {"precision": {"deterministic": True}}),
        ({"precision": {"cudnn_benchmark": True}}, {"precision": {"cudnn_benchmark": True}}),
        ({"precision": {"cudnn_benchmark": True}}, {"precision": {"cudnn_benchmark": False}}),
        (
            {"dtype": "bfloat16", "precision": {"bf16_reduced_precision_reduction": True}},
            {"dtype": "bfloat16", "precision": {"bf16_reduced_precision_reduction": False}},
        ),
    ],
)
def test_two_machines_are_compared_where_a_report_of_both_would(tmp_path: Path, one: Any, other: Any) -> None:
    rows = [one_row(tmp_path, name, **how) for name, how in (("a", one), ("b", other))]
    reported = compare(measured(rows_of([row.run for row in rows])))[0]
    assert (comparable(rows[0]) == comparable(rows[1])) == bool(reported)


def test_threads_and_an_unknown_switch_do_not_keep_two_cpus_apart(tmp_path: Path) -> None:
    rows = [
        one_row(tmp_path, "a", "cpu", threads=2),
        one_row(tmp_path, "b", "cpu", threads=64, precision={"deterministic": False}),
    ]
    assert comparable(rows[0]) == comparable(rows[1])


def test_a_benchmark_of_another_library_stands_for_no_device(tmp_path: Path) -> None:
    marks = [mark("models.mlp", "cpu", 1e-3), mark("models.mlp", "cpu", 1e-6, implementation="numpy")]
    files = sited(tmp_path, made(tmp_path, "a", marks, devices=(CPU,), label="AMD EPYC 9654"))
    (row,) = data_of(files, "a")["devices"]["CPU"]["rows"]
    assert row[4] == 1e-3
