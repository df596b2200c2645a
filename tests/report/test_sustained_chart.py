"""What lasts of a rate: one line in the answer and one small picture, for devices that slow down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
import records
from comparing import BOTH, both

from gpubench.report.answer import Answer
from gpubench.report.charts.layouts import LinePanels
from gpubench.report.charts.pictures import plan, render
from gpubench.report.concerns import Concern
from gpubench.report.study import Study


def study(folder: Path, **lasting: float) -> Study:
    """Each device falls from its best second to that share of it."""
    product = {"dtype": "float32", "n": 4096, "library": "numpy"}
    seconds = {name.replace("_", ":"): [1e12, *[share * 1e12] * 19] for name, share in lasting.items()}
    data: dict[str, Any] = records.run_file(both("matmul.square", 8.0, 1.0), devices=BOTH)
    data["gpubench"]["sustained"] = {name: product | {"flop_per_s": rates} for name, rates in seconds.items()}
    return Study([reading.run_of(folder, data)])


@pytest.mark.parametrize(("share", "said"), [(0.89, True), (0.91, False)])
def test_a_device_that_falls_by_more_than_a_tenth_is_named_and_drawn(tmp_path: Path, share: float, said: bool) -> None:
    made = study(tmp_path, cpu=1.0, cuda_0=share)
    told = [str(each) for each in Answer(made).warnings if each.what is Concern.SUSTAINED]
    assert bool(told) == said
    if said:
        assert "Synthetic H 890 GFLOP/s of 1.00 TFLOP/s in float32 (89%)." in told[0]
        assert "Synthetic 1.00" not in told[0]
    (figure,) = (each for each in plan(made, every=True)[0] if each.kind == "sustained")
    assert figure.default == said
    assert isinstance(figure.chart, LinePanels)
    curves = figure.chart.panels[0].curves
    assert [curve.points[-1].y for curve in curves] == pytest.approx([100, 100 * share])
    assert len(render([figure], ["svg"], ["light"])) == 1


def test_without_such_rates_there_is_no_picture(tmp_path: Path) -> None:
    assert "sustained" not in {each.kind for each in plan(study(tmp_path), every=True)[0]}
