"""A card is read as its results file is, and holds nothing more than a card may."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import reading
import records

from gpubench.commands.cli import main
from gpubench.errors import RunFileError, UsageError
from gpubench.report.study import Study
from gpubench.runfile.card import card_of, card_text
from gpubench.runfile.columnar import as_columns, as_rows
from gpubench.runfile.reader import content_of, read
from gpubench.runfile.schema import KEY

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results/xeon-2-cores/run.json"


def test_a_card_tells_what_its_results_file_tells(tmp_path: Path) -> None:
    """But for digits and the names of tests: rows and speedups, of several devices and processes."""
    run = reading.run_of(tmp_path, records.gpu_run(processes=3))
    path = tmp_path / "card.json"
    path.write_text(card_text(card_of(content_of(run.path), run.path)))
    card = read(path)
    assert card.card
    whole, short = (reading.results(Study([each])) for each in (run, card))
    for one, other in zip(whole, short, strict=True):
        near = {name: pytest.approx(each, rel=1e-3) if isinstance(each, float) else each for name, each in one.items()}
        assert other == near | {"run": "card", "machine": card.machine.label, "pytest_id": other["pytest_id"]}
    assert card.machine.label == "Synthetic CPU · Synthetic H-GPU"
    wholes, shorts = ([pair.ratio for pair in Study([each]).pairs] for each in (run, card))
    assert len(wholes) > 50
    for ratio, other_ratio in zip(wholes, shorts, strict=True):
        assert dataclasses.astuple(other_ratio)[:3] == pytest.approx(dataclasses.astuple(ratio)[:3], rel=1e-3)


def test_a_card_of_a_card_is_that_card(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text(card_text(card_of(content_of(PUBLISHED), PUBLISHED)))
    card = content_of(path)
    assert card == card_of(content_of(PUBLISHED), PUBLISHED)
    assert card_text(card_of(card, path)) == path.read_text()


def test_a_card_is_small() -> None:
    """The quick suite in three processes: 335 benchmarks."""
    run = ROOT / "results/xeon-2.80ghz/run.json"
    assert len(card_text(card_of(content_of(run), run)).encode()) < 110_000


def test_a_card_keeps_to_the_schema_and_holds_no_further_key() -> None:
    data = records.gpu_run(processes=3)
    data["benchmarks"][0]["extra_info"][KEY]["secret"] = 1
    data["machine_info"][KEY]["label"] = "Jane's"
    card = card_of(data, Path("run.json"))
    text = card_text(card)
    for each in (card, json.loads(text)):
        jsonschema.validate(each, json.loads((ROOT / "gpubench/runfile/schema.json").read_text()))
    for word in ("not-to-be-shown", "commit", "asked", "secret", "Jane", '"data"', "test_", '"seen"'):
        assert word not in text


ROWS: list[dict[str, Any]] = [
    {"a": {"b": 1, "c": []}, "list": [{"x": 1}, {"x": None}], "params": {"n": 1, "m": 2}},
    {"a": {"b": 1}, "list": [{"y": [1, 2]}], "params": {"m": 2, "n": 1}},
    {"d": [3], "params": {}},
]


def test_columns_hold_what_their_rows_held_in_its_order() -> None:
    columns = as_columns(ROWS)
    assert columns["a"] == {"b": [[1, 2], [1]], "c": [[[], 1], [2]]}
    assert columns["list"]["0"] == {"x": [1, [2]], "y": [[1], [[1, 2], 1], [1]]}
    rows = as_rows(columns, 3)
    assert [list(row.get("params", ())) for row in rows] == [["n", "m"], ["m", "n"], []]
    assert rows == ROWS


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [1, 2], "b": [1]}, {"a": [1, [2, 20_000]]}, {"a": [[1, 10**12]]}, {"a": [[1, -1]]}, {"a": [[]]},
        {"a": [[1, 2, 3]]}, {"a": [["x"]]}, {"a": 1}, [[{}, 10**12]], {str(n): [[1, 20_000]] for n in range(300)},
    ],
    ids=range(10),
)  # fmt: skip
def test_what_are_no_columns_is_refused(columns: Any) -> None:
    with pytest.raises(ValueError, match=r"run that says|several lengths|no column"):
        as_rows(columns, 20_000)


def test_a_file_with_wrong_columns_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    card = json.loads(card_text(card_of(records.cpu_run(3), path)))
    card[KEY]["columns"]["benchmarks"]["stats"]["median"].append(1.0)
    path.write_text(json.dumps(card))
    with pytest.raises(RunFileError, match=r"columns.benchmarks: expected columns .columns of several lengths"):
        read(path)


def test_operators_are_summed_by_kind() -> None:
    data = records.cpu_run()
    each = {"kind": "product", "count": 2, "flops": 4e6, "bytes": 1e3}
    data["benchmarks"][0]["extra_info"][KEY]["work"]["operators"] = [each, each | {"kind": "other"}, each]
    mark = card_of(data, Path("run.json"))["benchmarks"][0]
    summed = {"kind": "product", "count": 4, "flops": 8000000, "bytes": 2000}
    assert mark["extra_info"][KEY]["work"]["operators"] == [summed, each | {"kind": "other"}]


def test_what_a_card_cant_do_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card, plain = tmp_path / "card.json", tmp_path / "plain.json"
    card.write_text(card_text(card_of(records.cpu_run(3), card)))
    plain.write_text(
        json.dumps({key: value for key, value in records.cpu_run(3).items() if key != KEY} | {"benchmarks": []})
    )
    assert main(["report", str(card), "--charts", "none", "-o", str(tmp_path / "out")]) == 0
    assert "| not known from a card | single rounds" in (tmp_path / "out/summary.md").read_text()
    assert main(["merge", str(card), str(PUBLISHED), "-o", str(tmp_path / "merged.json")]) == 2
    assert "a card has no single rounds: merge the results files" in capsys.readouterr().err
    assert main(["export", str(card), "--to", "card", "-k", "matmul"]) == 2
    with pytest.raises(UsageError, match="alone has no card"):
        card_of(content_of(plain), plain)
