"""``gpubench chart``: which picture it draws, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.commands import cli
from gpubench.commands.chart import PICTURE_KINDS
from gpubench.runfile.schema import Case

SIZES = (16, 64, 256, 1024)


def product(device: str, n: int, workload: str = "matmul.square") -> dict[str, Any]:
    seconds = 1e-6 * n if device == "cpu" else 1e-5 + 1e-8 * n
    case = Case(workload, device, "float32", {"n": n}, size="n", threads=2, devices=(device,))
    copies = {"in_bytes": n, "out_bytes": n, "in_s": 1e-4, "out_s": 1e-4}
    more = {"transfer": copies} if device != "cpu" else {}
    work = {"flops": 2.0 * n**3, "bytes": 12.0 * n**2}
    return records.benchmark(case, seconds, medians=(seconds,) * 3, work=work, **more)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    marks = [
        product(device, n, name)
        for name in ("matmul.square", "mine.work")
        for device in ("cpu", "cuda:0")
        for n in SIZES
    ]
    peaks = {name: records.ceilings(name) for name in ("cpu", "cuda:0")}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU), ceilings=peaks)))
    return path


def chart(*words: str | Path) -> int:
    return cli.main(["chart", *map(str, words)])


@pytest.mark.parametrize("kind", PICTURE_KINDS)
def test_each_kind_is_one_file(run: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "picture.svg"
    assert chart(run, "--kind", kind, "-k", "matmul.square", "-o", out) == 0
    assert out.read_text().startswith("<?xml")
    assert capsys.readouterr().out == f"{out}\n"
    first = out.read_bytes()
    assert chart(run, "--kind", kind, "-k", "matmul.square", "-o", out) == 0
    assert out.read_bytes() == first


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
    assert "Synthetic H-GPU" not in text


def test_png(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.PNG"
    assert chart(run, "--kind", "time", "-o", out) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--kind", "pie"), "unknown kind of picture 'pie': choose from speedup, rate, time, roofline, break-even"),
        (("--kind", "rate", "--label", "cuda:1=H100"), "choose from cpu (Synthetic CPU), cuda:0 (Synthetic H-GPU)"),
        (("--kind", "rate", "--label", "H100"), "write DEVICE=TEXT"),
        (("--kind", "rate", "-k", "resnet"), "no benchmark matches 'resnet': choose from matmul.square, mine.work"),
        (("--kind", "rate", "-k", "and"), "expected a word"),
        (("--kind", "speedup", "-k", "cpu"), "no speedup picture can be made of these results: these results make"),
        (("--kind", "speedup", "-k", "n=16"), "no speedup picture"),
        (("--kind", "rate", "--width", "20"), "--width 20: expected 400 to 4000 pixels"),
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
