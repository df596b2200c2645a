"""The colours: told apart by everybody, and standing out from the page."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from reading import study_of
from records import run

from gpubench.report.charts import theme as themes

TOGETHER = {"devices": (*themes.ACCELERATORS, *themes.CPUS), "dtypes": themes.DTYPE_ROLES}
"""Roles that one chart may show."""
LEAST = 12.0
# Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency (2009), of
# severity 1, on linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([
    [0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]
])  # fmt: skip
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(code: str) -> np.ndarray:
    parts = np.array([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> tuple[float, float, float]:
    """CIE L*a*b* of linear RGB, D65."""
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: tuple[float, float, float], two: tuple[float, float, float]) -> float:
    """CIEDE2000, after Sharma, Wu, Dalal: The CIEDE2000 Color-Difference Formula (2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, two
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(mean**7 / (mean**7 + 25**7))
    c1, c2 = math.hypot(a1 * stretch, b1), math.hypot(a2 * stretch, b2)
    h1, h2 = (math.degrees(math.atan2(b, a * stretch)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1 - 0.17 * cos(hue - 30) + 0.24 * cos(2 * hue) + 0.32 * cos(3 * hue + 6) - 0.20 * cos(4 * hue - 63)
    by_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2))
    by_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    by_hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    rotation = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    rotation *= math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    return math.sqrt(by_light**2 + by_chroma**2 + by_hue**2 + rotation * by_chroma * by_hue)


def cos(degrees: float) -> float:
    return math.cos(math.radians(degrees))


def test_the_formula_gives_its_authors_figures() -> None:
    for one, two, expected in (
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425), ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ):  # fmt: skip
        assert difference(one, two) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", themes.THEMES)
@pytest.mark.parametrize("roles", TOGETHER)
def test_everybody_tells_the_colours_of_a_chart_apart(roles: str, theme: str, sight: str) -> None:
    seen = {role: lab(SIGHTS[sight] @ linear(themes.colour(theme, role))) for role in TOGETHER[roles]}
    near = {
        (one, two): round(difference(seen[one], seen[two]), 1)
        for one, two in itertools.combinations(seen, 2)
        if difference(seen[one], seen[two]) < LEAST
    }
    assert near == {}


def contrast(one: str, two: str) -> float:
    """WCAG 2.1, relative luminance and contrast ratio."""
    low, high = sorted(float(np.dot([0.2126, 0.7152, 0.0722], linear(code))) for code in (one, two))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", themes.THEMES)
def test_colours_stand_out(theme: str) -> None:
    paper, shade = themes.colour(theme, "page"), themes.colour(theme, "shade")
    for role in {role for roles in TOGETHER.values() for role in roles}:
        assert contrast(themes.colour(theme, role), paper) >= 3, role
        assert contrast(themes.colour(theme, role), shade) >= 3, role
    for role in ("text", "muted"):
        assert min(contrast(themes.colour(theme, role), other) for other in (paper, shade)) >= 4.5


def test_shape_stands_beside_colour() -> None:
    for roles in TOGETHER.values():
        shapes = {themes.MARK_SHAPES[role] for role in roles}
        assert len(shapes) == len(roles)
        assert not shapes & {"D", "d"}  # a crossover's


def test_a_fifth_and_further_device_has_a_look_of_its_own() -> None:
    """No GPU takes another one's colour and shape."""
    labels = ["RTX 4060", "L4", "A100", "H100", "H200", "B200", "MI300X"]
    study = study_of(*(run(name, gpu={"label": name}).bench("a.b", cpu=2.0, gpu=1.0, numpy=1.0) for name in labels))
    roles = [themes.role_of(study.names, row) for row in study.measured]
    looks = {(themes.colour(themes.LIGHT, role), themes.MARK_SHAPES[role]) for role in roles}
    assert len(roles) == len({*roles}) == len(looks) == 3 * len(labels)


def test_a_light_picture_in_the_other_theme_has_no_light_colour_left() -> None:
    roles = [*(role for roles in TOGETHER.values() for role in roles), "page", "text", "muted", "grid", "shade"]
    light = " ".join(themes.colour(themes.LIGHT, role) for role in roles).encode()
    dark = themes.recolour(light, themes.DARK)
    assert dark.decode().split() == [themes.colour(themes.DARK, role) for role in roles]
    assert themes.recolour(light, themes.LIGHT) == light
    assert re.fullmatch(rb"(#[0-9a-f]{6} ?)+", dark)
