"""``gpubench chart``: which picture it draws, and what it refuses in one line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.commands import cli
from gpubench.commands.chart import PICTURE_KINDS
from gpubench.runfile.schema import Case

SIZES = (16, 64, 256, 1024)


def product(device: str, n: int, workload: str = "matmul.square", dtype: str = "float32") -> dict[str, Any]:
    seconds = 1e-4 * n if device == "cpu" else 1e-3 + 1e-6 * n
    case = Case(workload, device, dtype, {"n": n}, size="n", threads=2, devices=(device,))
    copies = {"in_bytes": n, "out_bytes": n, "in_s": 1e-4, "out_s": 1e-4}
    more = {"transfer": copies} if device != "cpu" else {}
    work = {"flops": 2.0 * n**3, "bytes": 12.0 * n**2}
    return records.benchmark(case, seconds, medians=(seconds,) * 3, work=work, first_call_s=2 * seconds, **more)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    marks = [
        product(device, n, name, dtype)
        for name, dtype in (("matmul.square", "float32"), ("mine.work", "float32"), ("matmul.square", "float64"))
        for device in ("cpu", "cuda:0")
        for n in SIZES
    ]
    peaks = {name: records.ceilings(name) for name in ("cpu", "cuda:0")}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU), ceilings=peaks)))
    return path


def chart(*words: str | Path) -> int:
    return cli.main(["chart", *map(str, words)])


@pytest.mark.parametrize("kind", sorted({*PICTURE_KINDS} - {"expressions", "gpu-time", "energy"}))  # of other runs
def test_each_kind_is_one_file(run: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "--kind", kind, "-k", "matmul.square", "-o", out) == 0
    assert out.read_text().startswith("<?xml")
    assert capsys.readouterr().out == f"{out}\n"
    first = out.read_bytes()
    assert chart(run, "--kind", kind, "-k", "matmul.square", "-o", out) == 0
    assert out.read_bytes() == first


def test_without_a_kind_it_is_the_headline(run: Path, tmp_path: Path) -> None:
    assert chart(run, "-o", tmp_path / "a.svg") == chart(run, "--kind", "headline", "-o", tmp_path / "b.svg") == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_without_a_kind_and_a_headline_it_is_the_first_that_can_be_made(tmp_path: Path) -> None:
    case = [Case("bench_text.dedupe", "", "", {"n": n}, "", size="n") for n in (100, 400, 1600)]
    run, out = tmp_path / "run.json", tmp_path / "picture.svg"
    run.write_text(json.dumps(records.run_file([records.benchmark(each, 1e-6 * each.params["n"]) for each in case])))
    assert chart(run, "--kind", "headline", "-o", out) == 2
    assert chart(run, "-o", out) == 0
    assert words_of(out).startswith("Bench text: time per call")


@pytest.mark.parametrize("kind", ["energy", "gpu-time"])
def test_what_a_report_draws_can_be_drawn_alone(tmp_path: Path, kind: str) -> None:
    run, out = tmp_path / "gpu.json", tmp_path / "picture.svg"
    run.write_text(json.dumps(records.gpu_run(3)))
    assert chart(run, "--kind", kind, "-o", out) == 0
    assert "Synthetic H" in words_of(out)


def test_the_words_choose_what_is_drawn(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "--kind", "speedup", "-k", "mine.work", "-o", out) == 0
    assert "mine.work" in out.read_text()
    assert chart(run, "--kind", "speedup", "-k", "matmul and not n=1024", "-o", out) == 0
    text = out.read_text()
    assert "Matrix products" in text
    assert ">1024<" not in text
    assert ">256<" in text


def test_title_size_label_and_theme(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    words = ("--title", "A <b>title</b>", "--width", "640", "--height", "480", "--label", "cuda:0=H100 & friends")
    assert chart(run, "--kind", "rate", *words, "--theme", "dark", "-o", out) == 0
    text = out.read_text()
    assert "A &lt;b&gt;title&lt;/b&gt;" in text
    assert "H100 &amp; friends" in text
    assert 'width="480pt" height="360pt"' in text  # a pixel is 0.75 points
    assert "#0d1117" in text


def words_of(path: Path) -> str:
    return " ".join(" ".join(ET.fromstring(path.read_text()).itertext()).split())


def test_a_label_is_taken_as_it_is_and_the_makers_name_stays_in_the_caption(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "--kind", "rate", "-k", "matmul", "--label", "cuda:0=NVIDIA H100 (rented)", "-o", out) == 0
    assert "on the NVIDIA H100 (rented)" in words_of(out)
    assert "Synthetic CPU, Synthetic H-GPU" in words_of(out)


def test_a_title_of_ones_own_keeps_what_was_measured_as_subtitle(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "--kind", "speedup", "-k", "matmul", "--title", "Ours", "-o", out) == 0
    assert "Matrix products: Speedup over Synthetic, 2 threads" in words_of(out)
    assert chart(run, "--kind", "headline", "--title", "Ours", "-o", out) == 0
    assert " Speedup over Synthetic, 2 threads: each workload at its largest size" in words_of(out)


def test_the_dtypes_of_the_chosen_workload_are_drawn(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "--kind", "by-dtype", "-k", "matmul", "-o", out) == 0
    assert "Matrix products by dtype" in words_of(out)
    assert {"float32", "float64"} <= set(words_of(out).split())
    assert chart(run, "--kind", "by-dtype", "-k", "float32", "-o", out) == 2
    assert "no by-dtype picture can be made of these results: these results make" in capsys.readouterr().err


def test_what_else_matches_is_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "--kind", "speedup", "-k", "matmul or mine", "-o", out) == 0
    assert capsys.readouterr().err == "gpubench chart: drew Matrix products; to draw another, add -k: mine.work\n"
    assert chart(run, "--kind", "rate", "-k", "matmul or mine", "-o", out) == 0
    assert capsys.readouterr().err.endswith("to draw another, add -k: matmul\n")
    assert chart(run, "--kind", "speedup", "-k", "matmul", "-o", out) == 0
    assert capsys.readouterr().err == ""


def test_no_table_is_named_that_is_not_written(tmp_path: Path) -> None:
    marks = [product(device, n) for device in ("cpu", "cuda:0") for n in SIZES]
    for count in (1, 5):
        for mark in marks[:count]:
            mark["extra_info"]["gpubench"]["processes"][0]["flags"] = [{"flag": "noisy", "seen": "x"}]
        path, out = tmp_path / "run.json", tmp_path / "picture.svg"
        path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU))))
        assert chart(path, "--kind", "rate", "-o", out) == 0
        assert "summary.md" not in out.read_text()
        assert "gpubench report" not in words_of(out)
        assert "noisy" in words_of(out)


def test_one_size_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chart(run, "--kind", "rate", "-k", "matmul.square and n=16", "-o", tmp_path / "picture.svg") == 2
    assert capsys.readouterr().err.endswith("of these results: n × n has one size (n = 16)\n")


def test_png(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.PNG"
    assert chart(run, "--kind", "time", "-o", out) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("--kind", "pie"),
            "unknown kind of picture 'pie': choose from headline, speedup, by-dtype, rate, time, roofline, break-ev",
        ),
        (("--kind", "rate", "--label", "cuda:1=H100"), "choose from cpu (Synthetic CPU), cuda:0 (Synthetic H-GPU)"),
        (("--kind", "rate", "--label", "H100"), "write DEVICE=TEXT"),
        (("--kind", "rate", "-k", "resnet"), "no benchmark matches 'resnet': choose from matmul.square, mine.work"),
        (("--kind", "rate", "-k", "and"), "expected a word"),
        (("--kind", "speedup", "-k", "cpu"), "no speedup picture can be made of these results: these results make"),
        (("--kind", "speedup", "-k", "n=16"), "no speedup picture"),
        (("--kind", "rate", "--width", "20"), "--width 20: expected 560 to 4000 pixels"),
        (("--kind", "headline", "--height", "250"), "--height 250 is too low for this picture: it needs "),
        (("--kind", "rate", "--height", "9999"), "--height 9999: expected 240 to 4000 pixels"),
        (("--kind", "rate", "-o", "picture.gif"), "a picture's name ends in .svg or .png"),
    ],
)
def test_one_line_names_what_there_is(
    run: Path, tmp_path: Path, words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "-o", out, *words) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not out.exists()
