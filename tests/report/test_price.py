"""What work costs, and which device does it for less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import records

from gpubench.errors import UsageError
from gpubench.report import price, table
from gpubench.report.judgement import TOO_NOISY, UNSURE
from gpubench.runfile import reader
from gpubench.runfile.schema import Case

CPU = {**records.CPU, "label": "Intel Xeon"}
GPU = {**records.GPU, "label": "NVIDIA H200"}
WORK = {"items": 10, "unit": "sample", "flops": 1e6}


def mark(device: str, median: float, *medians: float, work: dict[str, Any] | None = None, **how: Any) -> dict[str, Any]:
    case = Case("models.net", device, "float32", {"batch": 10}, size="batch", threads=2, devices=(device,))
    return records.benchmark(case, median, medians=medians or (median,) * 3, work=WORK if work is None else work, **how)


def results(folder: Path, cpu: dict[str, Any], gpu: dict[str, Any]) -> pd.DataFrame:
    path = folder / "mine.json"
    path.write_text(json.dumps(records.run_file([cpu, gpu], devices=(CPU, GPU), processes=3, label="Server")))
    return table.results_table([reader.read(path)])


@pytest.fixture
def ten(tmp_path: Path) -> pd.DataFrame:
    """A GPU ten times as fast as the CPU."""
    return results(tmp_path, mark("cpu", 1.0), mark("cuda:0", 0.1, energy_j=50.0))


def test_a_price_is_a_name_and_an_amount() -> None:
    assert price.parse_price("H200=2.99") == ("H200", 2.99)
    assert price.parse_price("a=b=3") == ("a=b", 3.0)
    for words in ("H200", "=3", " =3", "H200=", "H200=x", "H200=0", "H200=-1", "H200=nan", "H200=inf"):
        with pytest.raises(UsageError, match=r"write NAME=2\.99"):
            price.parse_price(words)


@pytest.mark.parametrize("name", ["H200", "h200", "NVIDIA H200", "cuda:0"])
def test_a_device_is_named_as_people_name_it(ten: pd.DataFrame, name: str) -> None:
    assert price.device_prices(ten, {name: 3.0}) == {("mine", "cuda:0"): 3.0}


@pytest.mark.parametrize("name", ["Server", "mine"])
def test_a_machine_stands_for_its_devices_and_a_device_goes_before(ten: pd.DataFrame, name: str) -> None:
    costs = price.device_prices(ten, {"cpu": 0.5, name: 3.0})
    assert costs == {("mine", "cpu"): 0.5, ("mine", "cuda:0"): 3.0}


def test_a_price_for_what_is_not_there_names_what_is(ten: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match=r"called 'A100': a price can be given for Xeon, H200, mine$"):
        price.price_tables(ten, {"A100": 2.0})


def test_work_for_money_and_energy_of_an_item(ten: pd.DataFrame) -> None:
    work, cheaper = price.price_tables(ten, {"cpu": 0.5, "H200": 3.6})
    assert [row[2:] for row in work.rows] == [
        ("Xeon, 2 threads", "0.50", "72.0 ksamples", "—"),  # 10 samples/s, 7200 s for 1.00
        ("H200", "3.60", "100 ksamples", "5.00 J/sample"),  # 100 samples/s, 1000 s for 1.00
    ]
    assert work.rows[0][:2] == ("Running networks", "models.net float32, batch=10")
    assert [row[2:] for row in cheaper.rows] == [("H200", "Xeon, 2 threads", "7.20×", "10.0×", "—", "H200")]


def test_the_cpu_is_cheaper_from_the_speedup_on(tmp_path: Path) -> None:
    table_of = results(tmp_path, mark("cpu", 1.0, 0.95, 1.0, 1.05), mark("cuda:0", 0.1, 0.095, 0.1, 0.105))

    def cheaper(ratio: float) -> str:
        return price.price_tables(table_of, {"cpu": 1.0, "cuda:0": ratio})[1].rows[0][-1]

    assert cheaper(6.0) == "H200"
    assert cheaper(10.0) == UNSURE
    assert cheaper(15.0) == "Xeon, 2 threads"


def test_one_price_gives_the_ratio_up_to_which_it_pays(ten: pd.DataFrame) -> None:
    work, cheaper = price.price_tables(ten, {"H200": 3.6})
    assert [row[2] for row in work.rows] == ["H200"]
    assert cheaper.rows[0][4:] == ("—", "10.0×", "—", "—")
    assert price.price_tables(ten, {}) == ()


def test_work_that_declares_nothing_is_counted_in_calls(tmp_path: Path) -> None:
    nothing = {"items": None, "flops": None}
    frame = results(tmp_path, mark("cpu", 1.0, work=nothing), mark("cuda:0", 0.1, work=nothing, energy_j=50.0))
    (row,) = price.price_tables(frame, {"H200": 3.6})[0].rows
    assert row[-2:] == ("10.0 kcalls", "50.0 J/call")
    (row,) = price.price_tables(frame, {"cpu": 3.6})[0].rows
    assert row[-1] == "1.00 kcalls"  # no energy, no column


def test_noise_has_no_price(tmp_path: Path) -> None:
    frame = results(tmp_path, mark("cpu", 1.0), mark("cuda:0", 0.1, 0.02, 0.1, 0.5))
    work, cheaper = price.price_tables(frame, {"H200": 3.6, "cpu": 1.0})
    assert work.rows[1][-1] == TOO_NOISY
    assert cheaper.rows[0][5:] == (TOO_NOISY, "—", UNSURE)


def test_a_part_of_a_name_that_no_other_has_is_enough(ten: pd.DataFrame) -> None:
    assert price.device_prices(ten, {"h20": 3.0}) == {("mine", "cuda:0"): 3.0}
    with pytest.raises(UsageError, match="called 'u'"):  # cpu and cuda:0
        price.device_prices(ten, {"u": 3.0})


def test_a_screen_shows_what_has_a_price_on_both_sides(ten: pd.DataFrame) -> None:
    both = price.price_tables(ten, {"cpu": 0.5, "H200": 3.0})
    (shown,) = price.priced_on_both_sides(both)
    assert shown.rows
    assert all("—" not in row[shown.columns.index("price ratio")] for row in shown.rows)
    assert price.priced_on_both_sides(price.price_tables(ten, {"H200": 3.0})) == ()
